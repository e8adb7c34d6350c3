//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// golden makes a filled claim on a node.
func (b *bed) golden(class, node string) {
	b.T.Helper()
	b.volume(volume{name: "golden", class: class, storage: "40Mi"})
	b.untilPhase("golden", cdiv1.WaitForFirstConsumer)
	b.consume("golden", node)
	b.untilPhase("golden", cdiv1.Succeeded)
	b.Delete("consumer-golden")
}

func cloneOf(namespace string) func(*cdiv1.DataVolume) {
	return func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}
	}
}

// TestVolumeCloneOnOneNode: the clone is held too, and is copied by one worker when it is bound beside its source.
func TestVolumeCloneOnOneNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	node := b.ReadyNodes()[0]
	b.golden(classWaits, node)
	b.volume(volume{name: "copy", class: classWaits, storage: "60Mi", change: cloneOf(b.Namespace)})
	b.untilPhase("copy", cdiv1.WaitForFirstConsumer)
	phases := b.phases("copy")
	b.consume("copy", node)
	b.untilPhase("copy", cdiv1.Succeeded)
	b.Delete("consumer-copy")
	if got, want := phases(), []cdiv1.DataVolumePhase{cdiv1.CloneInProgress, cdiv1.Succeeded}; !inOrder(got, want) {
		t.Errorf("phases were %v, want %v among them", got, want)
	}
	b.holds("copy", image(24), 60*mib)
}

// TestVolumeCloneToAnotherNode: where one pod cannot have both claims, one worker streams to another.
func TestVolumeCloneToAnotherNode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	nodes := b.ReadyNodes()
	b.golden(classWaits, nodes[0])
	b.volume(volume{name: "copy", class: classWaits, storage: "40Mi", change: cloneOf(b.Namespace)})
	b.untilPhase("copy", cdiv1.WaitForFirstConsumer)
	b.consume("copy", nodes[1])
	b.untilPhase("copy", cdiv1.Succeeded)
	b.Delete("consumer-copy")
	b.holds("copy", image(24), 40*mib)
	b.Wait("nothing of the transfer to be left", patience, func(ctx context.Context) (bool, string) {
		names := b.workers(ctx)
		var secrets corev1.SecretList
		if err := b.kube.List(ctx, &secrets, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		for _, s := range secrets.Items {
			names = append(names, s.Name)
		}
		return len(names) == 0, strings.Join(names, " ")
	})
}

// filesIn has a pod say everything about the files of a claim. A disk has the mode that guests need, and the time of its clone.
func (b *bed) filesIn(claim string) string {
	b.T.Helper()
	return b.Run(framework.Pod{Name: "list-" + claim, User: guest, Claims: []string{claim}, Script: "cd /" + claim + ` && find . -name lost+found -prune -o -print | sort | while read -r f; do
if [ -L "$f" ]; then echo "$f -> $(readlink "$f")"; elif [ "$f" = ./disk.img ]; then echo "$f $(stat -c %s "$f") $(sha256sum < "$f")"; elif [ -f "$f" ]; then echo "$f $(stat -c '%a %s %Y' "$f") $(sha256sum < "$f")"; elif [ "$f" != . ]; then echo "$f $(stat -c %a "$f")"; fi; done`})
}

// TestVolumeCloneFiles: a clone has everything that is on its source, with a disk among the files and without, copied on a node and streamed
// to another one; and a disk has the very bytes of its source's where no more room is asked for.
func TestVolumeCloneFiles(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]string{"with a disk": "head -c 24000000 /dev/urandom > disk.img", "without": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, framework.Restricted)
			nodes := b.ReadyNodes()
			class := classWaits
			b.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "golden"}, Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, Resources: request("64Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}})
			b.Run(framework.Pod{Name: "fill", Claims: []string{"golden"}, Node: nodes[0], User: guest, Script: "cd /golden && " + disk + ` &&
mkdir -p d/deep empty && head -c 3000000 /dev/urandom > d/file && echo text > d/deep/other && ln d/file second && ln -s /etc/passwd link &&
truncate -s 100M sparse && chmod 750 d/deep && chmod 4711 second && chmod 500 empty && mkfifo pipe`})
			want := b.filesIn("golden")
			for clone, node := range map[string]string{"copied": nodes[0], "streamed": nodes[1]} {
				b.volume(volume{name: clone, class: classWaits, size: "64Mi", change: cloneOf(b.Namespace)})
				b.untilPhase(clone, cdiv1.WaitForFirstConsumer)
				b.consume(clone, node)
				b.untilPhase(clone, cdiv1.Succeeded)
				b.Delete("consumer-" + clone)
				if got := b.filesIn(clone); got != want {
					t.Errorf("%s: the clone has\n%s\nand its source\n%s", clone, got, want)
				}
			}
		})
	}
}

// TestVolumeCloneSize: a clone without a size is as large as its source; a smaller one is refused.
func TestVolumeCloneSize(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.golden(classWaits, "")
	atOnce := map[string]string{immediately: ""}
	b.volume(volume{name: "same", class: classWaits, storage: "1Mi", annotations: atOnce, change: func(dv *cdiv1.DataVolume) {
		cloneOf(b.Namespace)(dv)
		dv.Spec.Storage.Resources = corev1.VolumeResourceRequirements{}
	}})
	b.untilPhase("same", cdiv1.Succeeded)
	have, want := b.claim("same").Spec.Resources.Requests.Storage(), b.claim("golden").Spec.Resources.Requests.Storage()
	if have.Cmp(*want) != 0 {
		t.Errorf("the clone asks for %s, its source for %s", have, want)
	}
	b.sums("same", sum(image(24), 40*mib), 40*mib)

	small := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "small"},
		Spec: cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{
			StorageClassName: ptr(classWaits), Resources: request("8Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}},
	}
	cloneOf(b.Namespace)(small)
	err := b.kube.Create(b.Context(), small)
	if err == nil {
		dv := b.until("small", "to be refused", func(dv *cdiv1.DataVolume) bool { return message(dv) != "" })
		if !strings.Contains(message(dv), "smaller") {
			t.Errorf("a clone smaller than its source: %s", message(dv))
		}
	} else if !strings.Contains(err.Error(), "smaller") {
		t.Errorf("a clone smaller than its source is refused with %v", err)
	}
}

// TestVolumeCloneWaits: for a source that does not exist, and for one that a pod writes to.
func TestVolumeCloneWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.volume(volume{name: "copy", class: classImmediate, storage: "40Mi", change: cloneOf(b.Namespace)})
	dv := b.until("copy", "to miss its source", func(dv *cdiv1.DataVolume) bool { return message(dv) != "" })
	if !strings.Contains(message(dv), "doesn't exist") {
		t.Errorf("the message is %q", message(dv))
	}
	b.volume(volume{name: "golden", class: classImmediate, storage: "40Mi"})
	b.untilPhase("golden", cdiv1.Succeeded)
	b.untilPhase("copy", cdiv1.Succeeded)

	b.consume("golden", "")
	b.WaitRunning("consumer-golden")
	b.volume(volume{name: "second", class: classImmediate, storage: "40Mi", change: cloneOf(b.Namespace)})
	dv = b.until("second", "to wait for the pod", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(message(dv), "consumer-golden")
	})
	if dv.Status.Phase != cdiv1.CloneScheduled {
		t.Errorf("phase is %s while the source is in use", dv.Status.Phase)
	}
	b.Delete("consumer-golden")
	b.untilPhase("second", cdiv1.Succeeded)
	b.holds("second", image(24), 40*mib)
}

// TestVolumeCloneAcrossNamespaces: an administrator may clone from another namespace, and nothing is left there.
func TestVolumeCloneAcrossNamespaces(t *testing.T) {
	t.Parallel()
	from, to := newBed(t), newBed(t)
	from.golden(classWaits, "")
	atOnce := map[string]string{immediately: ""}
	to.volume(volume{name: "copy", class: classWaits, storage: "40Mi", annotations: atOnce, change: cloneOf(from.Namespace)})
	to.untilPhase("copy", cdiv1.Succeeded)
	to.holds("copy", image(24), 40*mib)
	from.Wait("the source's namespace to be as before", patience, func(ctx context.Context) (bool, string) {
		names := from.workers(ctx)
		return len(names) == 0, strings.Join(names, " ")
	})
	if got := to.get("copy").Finalizers; len(got) != 0 {
		t.Errorf("finalizers left: %v", got)
	}
}

// TestVolumeFromDataSource: a DataSource stands for a claim, and says whether it is there.
func TestVolumeFromDataSource(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ds := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "debian"},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{
			PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"},
		}},
	}
	if err := b.kube.Create(b.Context(), ds); err != nil {
		t.Fatal(err)
	}
	ready := func(want corev1.ConditionStatus) {
		b.Wait("the DataSource to be ready: "+string(want), patience, func(ctx context.Context) (bool, string) {
			if err := b.kube.Get(ctx, client.ObjectKeyFromObject(ds), ds); err != nil {
				return false, err.Error()
			}
			for _, c := range ds.Status.Conditions {
				if c.Type == cdiv1.DataSourceReady {
					return c.Status == want, c.Reason + ": " + c.Message
				}
			}
			return false, "no condition"
		})
	}
	ready(corev1.ConditionFalse)
	b.golden(classWaits, "")
	ready(corev1.ConditionTrue)
	b.volume(volume{name: "copy", class: classWaits, storage: "40Mi", annotations: map[string]string{immediately: ""},
		change: func(dv *cdiv1.DataVolume) {
			dv.Spec.Source, dv.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian"}
		}})
	b.untilPhase("copy", cdiv1.Succeeded)
	b.holds("copy", image(24), 40*mib)
}
