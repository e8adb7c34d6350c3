// Package aggregated answers the two API groups that are not objects in etcd but questions: upload.cdi.kubevirt.io, which
// grants tokens for uploads, and subresources.kubevirt.io, which starts, stops and changes machines and connects to their
// consoles. The API server in front has found out who asks; whether they may is its RBAC rules' decision, taken before a
// request comes here.
//
// It carries nothing out itself: a request to a machine is written where the machine controller reads it (see
// api/kubevirt/v1/request.go), and the token that is granted is checked elsewhere.
package aggregated

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Cluster reads the objects that the answers depend on. A missing object is an error for which apierrors.IsNotFound holds.
type Cluster interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Machine(ctx context.Context, namespace, name string) (*kubevirt.VirtualMachine, error)
	Instance(ctx context.Context, namespace, name string) (*kubevirt.VirtualMachineInstance, error)
	// Migrations returns all migrations of a namespace.
	Migrations(ctx context.Context, namespace string) ([]kubevirt.VirtualMachineInstanceMigration, error)
	// Evacuation returns the name of the request that an instance's guest leaves its node; empty if there is none.
	Evacuation(ctx context.Context, i *kubevirt.VirtualMachineInstance) (string, error)
	// Launcher is the pod that an instance's guest is in; nil: there is none.
	Launcher(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error)
	// Instancetype is an instance type or a preference as JSON; those of the cluster have no namespace.
	Instancetype(ctx context.Context, kind, namespace, name string) ([]byte, error)
	Revision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error)
	// Carry carries a change out, or says by a conflict that an object is not any more as it was read.
	Carry(ctx context.Context, c Change) error
	// Console connects both ways to the guest of an instance until either end is closed.
	Console(ctx context.Context, i *kubevirt.VirtualMachineInstance, in io.Reader, out io.Writer) error
	// Ask has the launcher of an instance carry out a verb of internal/launcherapi.
	Ask(ctx context.Context, i *kubevirt.VirtualMachineInstance, verb string) (launcherapi.Said, error)
	// Open has it connect to a part of the guest. There is no connection if the Said is a refusal.
	Open(ctx context.Context, i *kubevirt.VirtualMachineInstance, verb, what string) (io.ReadWriteCloser, launcherapi.Said, error)
}

// Server answers.
type Server struct {
	Cluster Cluster
	// Key is the key that tokens are signed with at the moment.
	Key     func(now time.Time) (ed25519.PrivateKey, error)
	Version version.Info
	Log     *slog.Logger
}

// bodyMax is far larger than any request.
const bodyMax = 1 << 20

// Handler answers everything below /apis of our groups.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, g := range Groups {
		mux.HandleFunc("GET /apis/"+g.Name, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, g.Document()) })
		for _, v := range g.Versions {
			mux.HandleFunc("GET /apis/"+g.Name+"/"+v, func(w http.ResponseWriter, _ *http.Request) {
				write(w, http.StatusOK, g.resources(v))
			})
		}
	}
	mux.HandleFunc("POST /apis/"+Upload.Name+"/{version}/namespaces/{namespace}/uploadtokenrequests", s.answer(s.grant))
	for _, v := range Subresources.Versions {
		base := "/apis/" + Subresources.Name + "/" + v
		s.refuseOutOfScope(mux, base)
		mux.HandleFunc("GET "+base+"/version", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, s.Version) })
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/virtualmachines/{name}/{verb}", s.answer(s.machine))
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/virtualmachineinstances/{name}/{verb}", s.answer(s.instance))
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/virtualmachines/{name}/evacuate/cancel", s.answer(s.stayMachine))
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel", s.answer(s.stayInstance))
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/expand-vm-spec", s.answer(s.expandSpec))
		mux.HandleFunc("GET "+base+"/namespaces/{namespace}/virtualmachines/{name}/expand-spec", s.answer(s.expandMachine))
		mux.HandleFunc("GET "+base+"/namespaces/{namespace}/virtualmachines/{name}/objectgraph", s.answer(s.graphMachine))
		instance := "GET " + base + "/namespaces/{namespace}/virtualmachineinstances/{name}/"
		mux.HandleFunc(instance+"console", s.console)
		mux.HandleFunc(instance+"objectgraph", s.answer(s.graphInstance))
		mux.HandleFunc(instance+"vnc", s.screen)
		mux.HandleFunc(instance+"vnc/screenshot", s.screenshot)
		for _, verb := range []string{launcherapi.OSInfoVerb, launcherapi.FilesystemsVerb, launcherapi.UsersVerb} {
			mux.HandleFunc(instance+verb, s.answer(func(a asked) (int, any, error) { return s.inform(a, verb) }))
		}
		for _, kind := range []string{"virtualmachines", "virtualmachineinstances"} {
			forward := "GET " + base + "/namespaces/{namespace}/" + kind + "/{name}/portforward/{port}"
			mux.HandleFunc(forward, s.forward)
			mux.HandleFunc(forward+"/{protocol}", s.forward)
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "the server could not find the requested resource", 0, true))
	})
	return mux
}

// asked is a request: its user, and the object it is about.
type asked struct {
	*http.Request
	namespace, name, verb string
	user                  string
}

func read(r *http.Request) asked {
	a := asked{Request: r, namespace: r.PathValue("namespace"), name: r.PathValue("name"), verb: r.PathValue("verb")}
	if user, ok := request.UserFrom(r.Context()); ok {
		a.user = user.GetName()
	}
	return a
}

// into reads the body. An empty one leaves the options as they are.
func (a asked) into(options any) error {
	body, err := io.ReadAll(io.LimitReader(a.Body, bodyMax+1))
	if err == nil && len(body) > bodyMax {
		err = fmt.Errorf("it has more than %d bytes", bodyMax)
	}
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, options)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body cannot be read: %v", err))
	}
	return nil
}

// dry reports whether nothing may be changed.
func (a asked) dry(options []string) (bool, error) {
	all := append(options, a.URL.Query()["dryRun"]...)
	for _, one := range all {
		if one != metav1.DryRunAll {
			return false, apierrors.NewBadRequest(fmt.Sprintf("dryRun %q is not known: only %q is", one, metav1.DryRunAll))
		}
	}
	return len(all) > 0, nil
}

// answer turns the result of a request into a response, and logs the user and the request.
func (s *Server) answer(do func(asked) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := read(r)
		status, body, err := do(a)
		log := s.Log.With("user", a.user, "path", r.URL.Path)
		if err != nil {
			log.Info("refused", "why", err.Error())
			refuse(w, err)
			return
		}
		log.Info("granted")
		if body == nil {
			w.WriteHeader(status)
			return
		}
		write(w, status, body)
	}
}

// refuse answers with the Status of an error.
func refuse(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
