package web

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/status"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.}}javascript:alert(1)`

// hostile returns objects in which every text that a user can write is an attack.
func hostile() *view.Objects {
	meta := metav1.ObjectMeta{Namespace: evil, Name: evil, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0))}
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta}
	vm.Status.PrintableStatus = evil
	vm.Status.Conditions = []kubevirt.Condition{{Type: "Ready", Message: evil}}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: meta}
	i.Spec.Volumes = []kubevirt.Volume{{Name: evil, VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: evil}}}}
	i.Status.NodeName, i.Status.Phase = evil, kubevirt.PhaseRunning
	i.Status.Interfaces = []kubevirt.NetworkInterface{{IP: evil}}
	v := &cdiv1.DataVolume{ObjectMeta: meta}
	v.Status.Phase, v.Status.Progress = evil, "42%"
	v.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeReady, Message: evil}}
	spare := v.DeepCopy()
	spare.Name, spare.Status.Phase = evil+"2", cdiv1.WaitForFirstConsumer
	source := &cdiv1.DataSource{ObjectMeta: meta}
	source.Status.Conditions = []cdiv1.DataSourceCondition{{Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{Message: evil}}}
	cron := &cdiv1.DataImportCron{ObjectMeta: meta}
	cron.Spec.ManagedDataSource, cron.Spec.Schedule = evil, evil
	shot := &snapshot.VirtualMachineSnapshot{ObjectMeta: meta}
	shot.Spec.Source.Name, shot.Status.Phase, shot.Status.ReadyToUse = evil, evil, new(true)
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: evil}}
	profile.Status.Conditions = []cdiv1.StorageProfileCondition{{ConditionState: cdiv1.ConditionState{Message: evil}}}
	return &view.Objects{
		Objects: status.Objects{
			Machines: []*kubevirt.VirtualMachine{vm}, Instances: []*kubevirt.VirtualMachineInstance{i}, Volumes: []*cdiv1.DataVolume{v, spare},
			Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: evil, Labels: map[string]string{"vm.kubevirt.io/name": evil}}}},
		},
		Nodes:   []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: evil}}},
		Classes: []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: evil}, Provisioner: evil}}, Profiles: []*cdiv1.StorageProfile{profile},
		Images: []*cdiv1.DataSource{source}, Crons: []*cdiv1.DataImportCron{cron}, Snapshots: []*snapshot.VirtualMachineSnapshot{shot},
		Missing: []string{evil}, Lost: evil,
	}
}

// drawn returns all that is sent.
func drawn(p *renderer, o *view.Objects, ask question, events ...*corev1.Event) (*update, error) {
	var all *update
	err := p.draw(o, ask, events, func(u *update) error {
		if all == nil {
			all = u
			return nil
		}
		maps.Copy(all.Parts, u.Parts)
		maps.Copy(all.Lists, u.Lists)
		return nil
	})
	return all, err
}

// TestBeginning: a large page begins with a screenful, and ends as what it is.
func TestBeginning(t *testing.T) {
	o := hostile()
	for n := range 500 {
		v := o.Volumes[0].DeepCopy()
		v.Name = fmt.Sprint("v", n)
		o.Volumes = append(o.Volumes, v)
	}
	var sent []*update
	p := newRenderer()
	if err := p.draw(o, question{view: "volumes"}, nil, func(u *update) error { sent = append(sent, u); return nil }); err != nil || len(sent) != 2 {
		t.Fatalf("%d updates, %v", len(sent), err)
	}
	if first := sent[0]; len(first.Parts) != beginning || len(first.Lists["rows"]) > beginning || len(sent[1].Lists["rows"]) != 502 {
		t.Errorf("%d parts, then %d in the list", len(sent[0].Parts), len(sent[1].Lists["rows"]))
	}
	for _, id := range sent[0].Lists["rows"] {
		if sent[0].Parts[id] == "" {
			t.Errorf("%s is in the list and was not sent", id)
		}
	}
	if len(sent[0].Parts)+len(sent[1].Parts) != len(p.written) {
		t.Error("something was sent twice, or not at all")
	}
}

// TestHostile: no text of a user becomes HTML.
func TestHostile(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: evil}, InvolvedObject: corev1.ObjectReference{Kind: "VirtualMachine", Name: evil}, Reason: evil, Message: evil}
	for _, v := range []string{"overview", "machine", "volumes", "images", "classes"} {
		u, err := drawn(newRenderer(), hostile(), question{view: v, namespace: evil, name: evil}, event)
		if err != nil {
			t.Fatal(err)
		}
		shown := false
		for id, html := range u.Parts {
			shown = shown || strings.Contains(html, "&lt;script&gt;")
			for _, wrong := range []string{"<script", "<img", `"><`, `href="javascript:`} {
				if at := strings.Index(html, wrong); at >= 0 && (wrong != `"><` || strings.HasPrefix(html[at:], `"><script`)) {
					t.Errorf("%s, %s: %s", v, id, html[max(0, at-40):])
				}
			}
		}
		if !shown {
			t.Errorf("%s shows nothing of it", v)
		}
	}
}

// TestUpdates: what did not change is not sent again, and what is gone is taken from its list.
func TestUpdates(t *testing.T) {
	p, o := newRenderer(), hostile()
	ask := question{view: "volumes"}
	first, err := drawn(p, o, ask)
	if err != nil || len(first.Lists["rows"]) != 2 || len(first.Parts) < 3 {
		t.Fatalf("%v %v", first, err)
	}
	if again, err := drawn(p, o, ask); err != nil || again != nil {
		t.Errorf("nothing changed, and %v %v is sent", again, err)
	}
	changed := o.Volumes[1].DeepCopy()
	changed.Status.Progress = "50%"
	o.Volumes[1] = changed
	if u, err := drawn(p, o, ask); err != nil || len(u.Parts) != 1 || len(u.Lists) != 0 {
		t.Errorf("one changed, and %v %v is sent", u, err)
	}
	o.Volumes = o.Volumes[:1]
	if u, err := drawn(p, o, ask); err != nil || len(u.Parts) != 0 || len(u.Lists["rows"]) != 1 {
		t.Errorf("one is gone, and %v %v is sent", u, err)
	}
}
