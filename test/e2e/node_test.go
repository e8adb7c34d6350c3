//go:build e2e

package e2e

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
	"github.com/berth-vm/berth/test/e2e/framework"
)

// outage is what somebody has on a node that goes away and comes back: what they do before, what is to be seen while it is
// away, when an administrator has said that it is out of service, and after it is back.
type outage struct {
	before, away, out, back func(*testing.T)
}

// TestNodeStopped stops a node once for everything that can be lost with it; a node takes a minute to be missed. It is not
// run beside other tests, which would lose their pods.
func TestNodeStopped(t *testing.T) {
	b, y, d := newBed(t), newYard(t), disks{framework.New(t)}
	nodes := d.ReadyNodes()
	node := nodes[len(nodes)-1]
	release := b.web.hold()
	outages := map[string]outage{
		"volume": b.outage(node), "disks": d.outage(node), "running": y.runningOutage(node), "importing": y.importingOutage(node),
		"forced": y.forcedOutage(node), "elsewhere": y.elsewhereOutage(node), "copies": y.copiesOutage(node),
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
	service := y.outOfService(node)
	phase("out", func(o outage) func(*testing.T) { return o.out })
	service()
	close(y.gate.open)
	framework.Kubebox(t, "node", "start", node) // waits until the node is Ready
	release()
	phase("back", func(o outage) func(*testing.T) { return o.back })
}

// under is the same namespace in the hands of a subtest.
func under(t *testing.T, e *framework.Env) *framework.Env {
	t.Helper()
	mine := *e
	mine.T = t
	return &mine
}

// outage: a volume's worker loses its node in the middle. The volume says so, and is complete after the node came back.
func (b *bed) outage(node string) outage {
	of := func(t *testing.T) *bed { return &bed{under(t, b.Env), b.kube, b.web} }
	return outage{
		before: func(t *testing.T) {
			b := of(t)
			b.volume(volume{class: classWaits, storage: "40Mi"})
			b.untilPhase("disk", cdiv1.WaitForFirstConsumer)
			b.consume("disk", node)
			b.untilPhase("disk", cdiv1.ImportInProgress)
			b.Delete("consumer-disk")
		},
		away: func(t *testing.T) {
			dv := of(t).until("disk", "to say that its node is gone", func(dv *cdiv1.DataVolume) bool {
				return strings.Contains(message(dv), node)
			})
			if dv.Status.Phase == cdiv1.Failed || dv.Status.Phase == cdiv1.Succeeded {
				t.Errorf("phase is %s while the node is away", dv.Status.Phase)
			}
		},
		back: func(t *testing.T) {
			b := of(t)
			dv := b.untilPhase("disk", cdiv1.Succeeded)
			t.Logf("complete after %d restarts", dv.Status.RestartCount)
			b.holds("disk", image(24), 40*mib)
		},
	}
}

// outage: what was synced to a disk of the driver is there afterwards, and the volumes can be mounted again.
func (d disks) outage(node string) outage {
	return outage{
		before: func(t *testing.T) {
			d := disks{under(t, d.Env)}
			var claims, write []string
			for mode, block := range diskModes {
				claim := strings.ToLower(mode)
				d.Create(framework.Claim{Name: claim, Class: classDisk, Size: "64Mi", Block: block})
				claims, write = append(claims, claim), append(write, "echo kept | dd of="+place(claim, block)+" conv=fsync 2>/dev/null")
			}
			d.Start(framework.Pod{Name: "use", Node: node, Claims: claims, Script: strings.Join(write, "; ") + "; echo done; sleep 3600"})
			d.WaitRunning("use")
			d.Wait("the pod to have written", patience, func(context.Context) (bool, string) {
				out := d.Output("use")
				return strings.Contains(out, "done"), out
			})
		},
		back: func(t *testing.T) {
			d := disks{under(t, d.Env)}
			if _, err := d.Client.CoreV1().Pods(d.Namespace).Get(d.Context(), "use", metav1.GetOptions{}); err == nil {
				d.Delete("use") // unless it went with its node
			}
			for mode, block := range diskModes {
				claim := strings.ToLower(mode)
				out := d.Run(framework.Pod{Name: "look-" + claim, Claims: []string{claim}, Script: "head -c 4 " + place(claim, block)})
				if out != "kept" {
					t.Errorf("%s: after the restart there is %q", mode, out)
				}
			}
		},
	}
}

func (y *yard) under(t *testing.T) *yard {
	t.Helper()
	return &yard{under(t, y.Env), y.kube, y.url, y.gate}
}

// runningOutage: a machine that runs on the node says that it is gone, and runs again when it is back.
func (y *yard) runningOutage(node string) outage {
	vm := y.tiny("running", "local")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return outage{
		before: func(t *testing.T) {
			y := y.under(t)
			y.create(vm)
			y.status(vm, kubevirt.StatusRunning, boot)
		},
		away: func(t *testing.T) {
			y.under(t).status(vm, kubevirt.StatusUnknown, boot)
			if !strings.Contains(why(vm), node) {
				t.Errorf("the machine does not name the node that is gone: %s", why(vm))
			}
		},
		out: func(t *testing.T) {
			y := y.under(t)
			y.status(vm, kubevirt.StatusUnschedulable, 3*boot)
			y.Wait("the machine to say that its data is there", boot, func(ctx context.Context) (bool, string) {
				if err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
					return false, err.Error()
				}
				return strings.Contains(why(vm), "is on node "+node+", which is out of service"), why(vm)
			})
		},
		back: func(t *testing.T) { y.under(t).status(vm, kubevirt.StatusRunning, boot) },
	}
}

// importingOutage: a machine whose disk is being imported there runs when the node is back.
func (y *yard) importingOutage(node string) outage {
	vm := y.tiny("importing", "local")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	source := &vm.Spec.DataVolumeTemplates[0].Spec
	source.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.url}}
	source.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("300Mi")
	return outage{
		before: func(t *testing.T) {
			y := y.under(t)
			y.create(vm)
			y.Wait("the import to have begun", boot, func(ctx context.Context) (bool, string) {
				var v cdiv1.DataVolume
				err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "importing-0"}, &v)
				return err == nil && v.Status.Phase == cdiv1.ImportInProgress, string(v.Status.Phase)
			})
		},
		back: func(t *testing.T) { y.under(t).status(vm, kubevirt.StatusRunning, boot) },
	}
}
