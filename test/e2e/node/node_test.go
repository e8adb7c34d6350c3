//go:build e2e

package node

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// outage is a user's object on a node that fails and comes back: what the user does before, what is expected while the node is
// away, after an administrator has marked it out of service, and after it is back.
type outage struct {
	before, away, out, back func(*testing.T)
}

// TestNodeStopped stops a node once for everything that can be lost with it; a node takes a minute to be missed. It is not
// run beside other tests, which would lose their pods.
func TestNodeStopped(t *testing.T) {
	b, y, d := fixture.NewVolumes(t), fixture.NewMachines(t), fixture.Disks{Env: framework.New(t)}
	nodes := d.ReadyNodes()
	node := nodes[len(nodes)-1]
	release := b.Web.Hold()
	outages := map[string]outage{
		"volume": outageOfVolume(b, node), "disks": outageOfDisks(d, node), "running": runningOutage(y, node), "importing": importingOutage(y, node),
		"forced": forcedOutage(y, node), "elsewhere": elsewhereOutage(y, node), "copies": copiesOutage(y, node),
	}
	phase := func(name string, of func(outage) func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			for who, o := range outages {
				if step := of(o); step != nil {
					t.Run(who, func(t *testing.T) {
						t.Parallel()
						step(t)
					})
				}
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	phase("before", func(o outage) func(*testing.T) { return o.before })
	t.Cleanup(func() { framework.Kubebox(t, "node", "start", node) })
	framework.Kubebox(t, "node", "stop", node)
	phase("away", func(o outage) func(*testing.T) { return o.away })
	service := outOfService(y, node)
	phase("out", func(o outage) func(*testing.T) { return o.out })
	service()
	close(y.Gate.Open)
	framework.Kubebox(t, "node", "start", node) // waits until the node is Ready
	release()
	phase("back", func(o outage) func(*testing.T) { return o.back })
}

// outageOfVolume: a volume's worker loses its node in the middle. The volume says so, and is complete after the node came back.
func outageOfVolume(b *fixture.Volumes, node string) outage {
	of := func(t *testing.T) *fixture.Volumes {
		return &fixture.Volumes{Env: fixture.EnvOf(t, b.Env), Kube: b.Kube, Web: b.Web}
	}
	return outage{
		before: func(t *testing.T) {
			b := of(t)
			b.CreateVolume(fixture.Volume{Class: fixture.ClassWaits, Storage: "40Mi"})
			b.UntilPhase("disk", cdiv1.WaitForFirstConsumer)
			b.Consume("disk", node)
			b.UntilPhase("disk", cdiv1.ImportInProgress)
			b.Delete("consumer-disk")
		},
		away: func(t *testing.T) {
			dv := of(t).Until("disk", "to say that its node is gone", func(dv *cdiv1.DataVolume) bool {
				return strings.Contains(fixture.ReadyMessageOf(dv), node)
			})
			if dv.Status.Phase == cdiv1.Failed || dv.Status.Phase == cdiv1.Succeeded {
				t.Errorf("phase is %s while the node is away", dv.Status.Phase)
			}
		},
		back: func(t *testing.T) {
			b := of(t)
			dv := b.UntilPhase("disk", cdiv1.Succeeded)
			t.Logf("complete after %d restarts", dv.Status.RestartCount)
			b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
		},
	}
}

// outageOfDisks: what was synced to a disk of the driver is there afterwards, and the volumes can be mounted again.
func outageOfDisks(d fixture.Disks, node string) outage {
	return outage{
		before: func(t *testing.T) {
			d := fixture.Disks{Env: fixture.EnvOf(t, d.Env)}
			var claims, write []string
			for mode, block := range fixture.DiskModes {
				claim := strings.ToLower(mode)
				d.Create(framework.Claim{Name: claim, Class: fixture.ClassDisk, Size: "64Mi", Block: block})
				claims, write = append(claims, claim), append(write, "echo kept | dd of="+fixture.DataPath(claim, block)+" conv=fsync 2>/dev/null")
			}
			d.Start(framework.Pod{Name: "use", Node: node, Claims: claims, Script: strings.Join(write, "; ") + "; echo done; sleep 3600"})
			d.WaitRunning("use")
			d.Wait("the pod to have written", fixture.Patience, func(context.Context) (bool, string) {
				out := d.Output("use")
				return strings.Contains(out, "done"), out
			})
		},
		back: func(t *testing.T) {
			d := fixture.Disks{Env: fixture.EnvOf(t, d.Env)}
			if _, err := d.Client.CoreV1().Pods(d.Namespace).Get(d.Context(), "use", metav1.GetOptions{}); err == nil {
				d.Delete("use") // unless it went with its node
			}
			for mode, block := range fixture.DiskModes {
				claim := strings.ToLower(mode)
				out := d.Run(framework.Pod{Name: "look-" + claim, Claims: []string{claim}, Script: "head -c 4 " + fixture.DataPath(claim, block)})
				if out != "kept" {
					t.Errorf("%s: after the restart there is %q", mode, out)
				}
			}
		},
	}
}

func inSubtest(y *fixture.Machines, t *testing.T) *fixture.Machines {
	t.Helper()
	return &fixture.Machines{Env: fixture.EnvOf(t, y.Env), Kube: y.Kube, GuestURL: y.GuestURL, Gate: y.Gate}
}

// runningOutage: a machine that runs on the node says that it is gone, and runs again when it is back.
func runningOutage(y *fixture.Machines, node string) outage {
	vm := fixture.InClaimTemplates(y.TinyMachine("running", "local"))
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return outage{
		before: func(t *testing.T) {
			y := inSubtest(y, t)
			y.CreateMachine(vm)
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		},
		away: func(t *testing.T) {
			inSubtest(y, t).WaitStatus(vm, kubevirt.StatusUnknown, fixture.BootPatience)
			if !strings.Contains(fixture.ReadyMessage(vm), node) {
				t.Errorf("the machine does not name the node that is gone: %s", fixture.ReadyMessage(vm))
			}
		},
		out: func(t *testing.T) {
			y := inSubtest(y, t)
			y.WaitStatus(vm, kubevirt.StatusUnschedulable, 3*fixture.BootPatience)
			y.Wait("the machine to say that its data is there", fixture.BootPatience, func(ctx context.Context) (bool, string) {
				if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
					return false, err.Error()
				}
				return strings.Contains(fixture.ReadyMessage(vm), "is on node "+node+", which is out of service"), fixture.ReadyMessage(vm)
			})
		},
		back: func(t *testing.T) { inSubtest(y, t).WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience) },
	}
}

// importingOutage: a machine whose disk is being imported there runs when the node is back.
func importingOutage(y *fixture.Machines, node string) outage {
	vm := y.TinyMachine("importing", "local")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	source := &vm.Spec.DataVolumeTemplates[0].Spec
	source.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.GuestURL}}
	source.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("300Mi")
	return outage{
		before: func(t *testing.T) {
			y := inSubtest(y, t)
			y.CreateMachine(vm)
			y.Wait("the import to have begun", fixture.BootPatience, func(ctx context.Context) (bool, string) {
				var v cdiv1.DataVolume
				err := y.Kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "importing-0"}, &v)
				return err == nil && v.Status.Phase == cdiv1.ImportInProgress, string(v.Status.Phase)
			})
		},
		back: func(t *testing.T) { inSubtest(y, t).WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience) },
	}
}
