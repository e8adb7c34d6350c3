package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

func moversOf(t *testing.T, objects ...client.Object) (*movers, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgo.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &movers{reader: c, writer: cluster.New(c, nil, clock.RealClock{}), namespace: "berth", self: "us"}, c
}

// running returns an instance on node1 and its launcher.
func running(strategy kubevirt.EvictionStrategy, movable corev1.ConditionStatus) (*kubevirt.VirtualMachineInstance, *corev1.Pod) {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "instance"}}
	if strategy != "" {
		i.Spec.EvictionStrategy = &strategy
	}
	i.Status.Phase, i.Status.NodeName = kubevirt.PhaseRunning, "node1"
	if movable != "" {
		i.Status.Conditions = []kubevirt.Condition{{Type: "LiveMigratable", Status: movable, Reason: "DisksNotLiveMigratable", Message: "disk root is fixed"}}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: render.Machine{Instance: i}.PodName(render.Launcher), UID: "pod",
		Labels:          map[string]string{render.LabelMachine: "virt-launcher", render.LabelCreatedBy: string(i.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}}}
	p.Spec.NodeName, p.Status.Phase = "node1", corev1.PodRunning
	return i, p
}

// incoming makes the pod one that the guest is to move to; that which it is in is on node1.
func incoming(i *kubevirt.VirtualMachineInstance, p *corev1.Pod) {
	p.Name, p.Spec.NodeName = render.Machine{Instance: i, Incoming: "move"}.PodName(render.Launcher), "node2"
	p.Annotations = map[string]string{render.AnnMachine: `{"incoming":"move"}`}
}

func asks(user, name, object string, dry bool) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "team", Name: name, DryRun: &dry,
		UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: []byte(object)}}}
}

// TestEvict: what is answered to a drain, and whose guest is told to leave.
func TestEvict(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	move, able, none := kubevirt.EvictLiveMigrate, kubevirt.EvictLiveMigrateIfPossible, kubevirt.EvictNone
	for name, c := range map[string]struct {
		strategy kubevirt.EvictionStrategy
		movable  corev1.ConditionStatus
		cluster  kubevirt.EvictionStrategy
		change   func(*kubevirt.VirtualMachineInstance, *corev1.Pod)
		dry      bool
		says     string // empty: it may go
		marked   bool
	}{
		"moves":                            {strategy: move, movable: yes, says: `Eviction triggered evacuation of VMI "team/web"`, marked: true},
		"the cluster says so":              {cluster: move, movable: yes, says: "Eviction triggered", marked: true},
		"its own word counts":              {strategy: none, cluster: move, movable: yes},
		"nobody says":                      {movable: yes},
		"cannot":                           {strategy: move, movable: no, says: "disk root is fixed"},
		"cannot and need not":              {strategy: able, movable: no},
		"can":                              {strategy: able, movable: yes, says: "Eviction triggered", marked: true},
		"left to others":                   {strategy: kubevirt.EvictExternal, movable: no, says: "Eviction triggered", marked: true},
		"is being started":                 {strategy: move, says: "virtctl stop"},
		"only asks":                        {strategy: move, movable: yes, dry: true, says: "Eviction triggered"},
		"is on its way here":               {strategy: move, movable: yes, says: "just moving", change: incoming},
		"is on its way here, and need not": {strategy: able, movable: no, says: "just moving", change: incoming},
		"has come, and the status is late": {strategy: move, movable: yes, says: "Eviction triggered", marked: true, change: func(i *kubevirt.VirtualMachineInstance, p *corev1.Pod) {
			incoming(i, p)
			p.Annotations[render.AnnMove] = `{"run":true}`
		}},
		"no launcher has the name": {strategy: move, movable: yes, change: func(_ *kubevirt.VirtualMachineInstance, p *corev1.Pod) { p.Name = "virt-launcher-web" }},
		"has ended":                {strategy: move, movable: yes, change: func(_ *kubevirt.VirtualMachineInstance, p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"its machine has ended":    {strategy: move, movable: yes, change: func(i *kubevirt.VirtualMachineInstance, _ *corev1.Pod) { i.Status.Phase = kubevirt.PhaseFailed }},
		"of an instance before":    {strategy: move, movable: yes, change: func(_ *kubevirt.VirtualMachineInstance, p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }},
		"somebody's with the name": {strategy: move, movable: yes, change: func(_ *kubevirt.VirtualMachineInstance, p *corev1.Pod) { p.OwnerReferences = nil }},
		"a consumer": {strategy: move, movable: yes, change: func(i *kubevirt.VirtualMachineInstance, p *corev1.Pod) {
			p.Name, p.Annotations = render.Machine{Instance: i}.PodName(render.Consumer), map[string]string{render.AnnConsumer: "true"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i, p := running(c.strategy, c.movable)
			if c.change != nil {
				c.change(i, p)
			}
			k := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: kubevirt.ConfigurationName}}
			k.Spec.Configuration.EvictionStrategy = &c.cluster
			m, api := moversOf(t, i, p, k)
			got := m.evict(t.Context(), asks("drainer", p.Name, "{}", c.dry))
			switch {
			case got.Allowed != (c.says == ""):
				t.Errorf("allowed: %t %v", got.Allowed, got.Result)
			case !got.Allowed && (got.Result.Code != http.StatusTooManyRequests || !strings.Contains(got.Result.Message, c.says)):
				t.Errorf("%d %s", got.Result.Code, got.Result.Message)
			}
			if err := api.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			if marked := p.Annotations[render.AnnEvacuate] != ""; marked != c.marked {
				t.Errorf("marked: %t", marked)
			}
		})
	}
}

// TestCheckMigration: what is said of a migration that could not begin, in the words that clients know.
func TestCheckMigration(t *testing.T) {
	for name, c := range map[string]struct {
		movable corev1.ConditionStatus
		phase   kubevirt.Phase
		other   kubevirt.MigrationPhase
		vmi     string
		user    string
		says    string
	}{
		"moves":            {movable: corev1.ConditionTrue, phase: kubevirt.PhaseRunning},
		"nobody":           {vmi: "nobody", says: `the VMI "team/nobody" does not exist`},
		"over":             {phase: kubevirt.PhaseFailed, says: "finalized state"},
		"fixed":            {movable: corev1.ConditionFalse, phase: kubevirt.PhaseRunning, says: "Reason: DisksNotLiveMigratable, Message: disk root is fixed"},
		"one is under way": {movable: corev1.ConditionTrue, phase: kubevirt.PhaseRunning, other: kubevirt.MigrationRunning, says: "in-flight migration detected"},
		"one is over":      {movable: corev1.ConditionTrue, phase: kubevirt.PhaseRunning, other: kubevirt.MigrationFailed},
		"ourselves":        {movable: corev1.ConditionTrue, phase: kubevirt.PhaseRunning, other: kubevirt.MigrationRunning, user: "us"},
	} {
		t.Run(name, func(t *testing.T) {
			i, _ := running("", c.movable)
			i.Status.Phase = c.phase
			objects := []client.Object{i}
			if c.other != "" {
				objects = append(objects, &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", UID: types.UID("u9")},
					Spec: kubevirt.MigrationSpec{VMIName: "web"}, Status: kubevirt.MigrationStatus{Phase: c.other}})
			}
			m, _ := moversOf(t, objects...)
			asked := &kubevirt.VirtualMachineInstanceMigration{Spec: kubevirt.MigrationSpec{VMIName: "web"}}
			if c.vmi != "" {
				asked.Spec.VMIName = c.vmi
			}
			text, err := json.Marshal(asked)
			if err != nil {
				t.Fatal(err)
			}
			got := m.checkMigration(t.Context(), asks(c.user, "two", string(text), false))
			if got.Allowed != (c.says == "") || !got.Allowed && !strings.Contains(got.Result.Message, c.says) {
				t.Errorf("allowed %t: %s", got.Allowed, fmt.Sprint(got.Result))
			}
		})
	}
}
