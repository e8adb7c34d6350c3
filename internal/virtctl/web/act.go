package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/bind"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

// asked is the body of a request of the page.
type asked struct {
	Volume   string `json:"volume"`   // to add or remove
	Persist  bool   `json:"persist"`  // to every run from now on
	Snapshot string `json:"snapshot"` // to take or go back to
	Backup   string `json:"backup"`   // to make a machine of
	Place    string `json:"place"`    // where a held volume goes: any, node/NAME or machine/NAME
}

// bodyMost is far larger than any request of the page.
const bodyMost = 1 << 20

func read(w http.ResponseWriter, r *http.Request, into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("the request cannot be read: %w", err)
	}
	return nil
}

// act carries out what was asked of a machine.
func (s *Server) act(w http.ResponseWriter, r *http.Request, p *Person) {
	var a asked
	if err := read(w, r, &a); err != nil {
		refuse(w, err)
		return
	}
	said, err := do(r, p.Client.In(r.PathValue("namespace")), a)
	answer(w, said, err)
}

// do asks the cluster, and says what was asked for.
func do(r *http.Request, c *kube.Client, a asked) (string, error) {
	ctx, name := r.Context(), r.PathValue("name")
	switch verb := r.PathValue("verb"); verb {
	case "start":
		return "Asked to start.", machine.Start(ctx, c, name, machine.Change{})
	case "stop":
		return "Asked to stop.", machine.Stop(ctx, c, name, machine.Change{})
	case "restart":
		return "Asked to restart.", machine.Restart(ctx, c, name, machine.Change{})
	case "pause":
		return "Asked to pause.", machine.Pause(ctx, c, name, machine.Change{})
	case "unpause":
		return "Asked to go on.", machine.Unpause(ctx, c, name, machine.Change{})
	case "migrate":
		return "Asked to move to another node.", machine.Migrate(ctx, c, name, kubevirt.MigrateOptions{})
	case "migrate-cancel":
		return "Asked to stay where it is.", machine.CancelMigration(ctx, c, name, nil)
	case "addvolume":
		source, err := machine.Source(ctx, c, a.Volume)
		if err != nil {
			return "", err
		}
		o := kubevirt.AddVolumeOptions{Name: a.Volume, VolumeSource: source, Disk: &kubevirt.Disk{
			Name: a.Volume, Serial: a.Volume, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSCSI}},
		}}
		return "Asked to add " + a.Volume + ".", machine.AddVolume(ctx, c, name, o, a.Persist)
	case "removevolume":
		return "Asked to remove " + a.Volume + ".", machine.RemoveVolume(ctx, c, name, kubevirt.RemoveVolumeOptions{Name: a.Volume}, a.Persist)
	case "snapshot":
		return take(r, c, a)
	case "restore":
		return restore(r, c, a)
	case "restore-backup":
		return fromBackup(ctx, c, name, a.Backup)
	default:
		return "", apierrors.NewBadRequest(fmt.Sprintf("nobody knows how to %.40q a machine", verb))
	}
}

func source(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: &kubevirt.GroupVersion.Group, Kind: "VirtualMachine", Name: name}
}

func take(r *http.Request, c *kube.Client, a asked) (string, error) {
	made := &snapshot.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace}}
	made.Name, made.Spec.Source = a.Snapshot, source(r.PathValue("name"))
	if a.Snapshot == "" {
		return "", errors.New("give the snapshot a name")
	}
	_, err := kube.Snapshots.Create(r.Context(), c, made)
	return "Snapshot " + a.Snapshot + " is being taken.", err
}

func restore(r *http.Request, c *kube.Client, a asked) (string, error) {
	made := &snapshot.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, GenerateName: "restore-"}}
	made.Spec.Target, made.Spec.VirtualMachineSnapshotName = source(r.PathValue("name")), a.Snapshot
	_, err := kube.Restores.Create(r.Context(), c, made)
	return "The machine goes back to " + a.Snapshot + " as soon as it is stopped.", err
}

// bind binds a held volume where the person wants it.
func (s *Server) bind(w http.ResponseWriter, r *http.Request, p *Person) {
	var a asked
	if err := read(w, r, &a); err != nil {
		refuse(w, err)
		return
	}
	c, ctx := p.Client.In(r.PathValue("namespace")), r.Context()
	kind, name, _ := strings.Cut(a.Place, "/")
	var at bind.Place
	var err error
	switch kind {
	case "any":
	case "node":
		at, err = bind.OnNode(ctx, c, name)
	case "machine":
		at, err = bind.LikeVM(ctx, c, name)
	default:
		err = fmt.Errorf("%.60q is no place", a.Place)
	}
	if err == nil {
		var out strings.Builder
		err = bind.Bind(ctx, c, r.PathValue("name"), at, &out)
	}
	answer(w, "It has its place.", err)
}

// answer answers with the result of a request.
func answer(w http.ResponseWriter, said string, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"said": said}) // the client is gone
}

// refuse says what is wrong, with the code that the cluster gave if it was the cluster.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest
	var known apierrors.APIStatus
	if errors.As(err, &known) && known.Status().Code >= http.StatusBadRequest {
		code = int(known.Status().Code)
	}
	text := err.Error()
	var advised interface{ Advice() string }
	if errors.As(err, &advised) {
		text += "\n" + advised.Advice()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // the client is gone
}
