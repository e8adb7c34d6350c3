//go:build e2e

package volume

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

func cloneOf(namespace string) func(*cdiv1.DataVolume) {
	return func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}
	}
}

// TestVolumeCloneOnOneNode: the clone is held too, and is copied by one worker when it is bound beside its source.
func TestVolumeCloneOnOneNode(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	node := b.ReadyNodes()[0]
	b.CreateGoldenClaim(fixture.ClassWaits, node)
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassWaits, Storage: "60Mi", Change: cloneOf(b.Namespace)})
	b.UntilPhase("copy", cdiv1.WaitForFirstConsumer)
	phases := b.RecordPhases("copy")
	b.Consume("copy", node)
	b.UntilPhase("copy", cdiv1.Succeeded)
	b.Delete("consumer-copy")
	if got, want := phases(), []cdiv1.DataVolumePhase{cdiv1.CloneInProgress, cdiv1.Succeeded}; !inOrder(got, want) {
		t.Errorf("phases were %v, want %v among them", got, want)
	}
	b.Holds("copy", fixture.DiskImage(24), 60*fixture.MiB)
}

// TestVolumeCloneToAnotherNode: where one pod cannot have both claims, one worker streams to another.
func TestVolumeCloneToAnotherNode(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	nodes := b.ReadyNodes()
	b.CreateGoldenClaim(fixture.ClassWaits, nodes[0])
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassWaits, Storage: "40Mi", Change: cloneOf(b.Namespace)})
	b.UntilPhase("copy", cdiv1.WaitForFirstConsumer)
	b.Consume("copy", nodes[1])
	b.UntilPhase("copy", cdiv1.Succeeded)
	b.Delete("consumer-copy")
	b.Holds("copy", fixture.DiskImage(24), 40*fixture.MiB)
	b.Wait("nothing of the transfer to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
		names := b.WorkersOf(ctx)
		var secrets corev1.SecretList
		if err := b.Kube.List(ctx, &secrets, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		for _, s := range secrets.Items {
			names = append(names, s.Name)
		}
		return len(names) == 0, strings.Join(names, " ")
	})
}

// filesIn has a pod say everything about the files of a claim. A disk has the mode that guests need, and the time of its clone.
func filesIn(b *fixture.Volumes, claim string) string {
	b.T.Helper()
	return b.Run(framework.Pod{Name: "list-" + claim, User: fixture.GuestUser, Claims: []string{claim}, Script: "cd /" + claim + ` && find . -name lost+found -prune -o -print | sort | while read -r f; do
if [ -L "$f" ]; then echo "$f -> $(readlink "$f")"; elif [ "$f" = ./disk.img ]; then echo "$f $(stat -c %s "$f") $(sha256sum < "$f")"; elif [ -f "$f" ]; then echo "$f $(stat -c '%a %s %Y' "$f") $(sha256sum < "$f")"; elif [ "$f" != . ]; then echo "$f $(stat -c %a "$f")"; fi; done`})
}

// TestVolumeCloneFiles: a clone has everything that is on its source, with a disk among the files and without, copied on a node and streamed
// to another one; and a disk has the very bytes of its source's where no more room is asked for.
func TestVolumeCloneFiles(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]string{"with a disk": "head -c 24000000 /dev/urandom > disk.img", "without": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t, framework.Restricted)
			nodes := b.ReadyNodes()
			class := fixture.ClassWaits
			b.CreateObject(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "golden"}, Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, Resources: fixture.StorageRequest("64Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}})
			b.Run(framework.Pod{Name: "fill", Claims: []string{"golden"}, Node: nodes[0], User: fixture.GuestUser, Script: "cd /golden && " + disk + ` &&
mkdir -p d/deep empty && head -c 3000000 /dev/urandom > d/file && echo text > d/deep/other && ln d/file second && ln -s /etc/passwd link &&
truncate -s 100M sparse && chmod 750 d/deep && chmod 4711 second && chmod 500 empty && mkfifo pipe`})
			want := filesIn(b, "golden")
			for clone, node := range map[string]string{"copied": nodes[0], "streamed": nodes[1]} {
				b.CreateVolume(fixture.Volume{Name: clone, Class: fixture.ClassWaits, Size: "64Mi", Change: cloneOf(b.Namespace)})
				b.UntilPhase(clone, cdiv1.WaitForFirstConsumer)
				b.Consume(clone, node)
				b.UntilPhase(clone, cdiv1.Succeeded)
				b.Delete("consumer-" + clone)
				if got := filesIn(b, clone); got != want {
					t.Errorf("%s: the clone has\n%s\nand its source\n%s", clone, got, want)
				}
			}
		})
	}
}

// TestVolumeCloneSize: a clone without a size is as large as its source; a smaller one is refused.
func TestVolumeCloneSize(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateGoldenClaim(fixture.ClassWaits, "")
	atOnce := map[string]string{fixture.BindImmediately: ""}
	b.CreateVolume(fixture.Volume{Name: "same", Class: fixture.ClassWaits, Storage: "1Mi", Annotations: atOnce, Change: func(dv *cdiv1.DataVolume) {
		cloneOf(b.Namespace)(dv)
		dv.Spec.Storage.Resources = corev1.VolumeResourceRequirements{}
	}})
	b.UntilPhase("same", cdiv1.Succeeded)
	have, want := b.ReadClaim("same").Spec.Resources.Requests.Storage(), b.ReadClaim("golden").Spec.Resources.Requests.Storage()
	if have.Cmp(*want) != 0 {
		t.Errorf("the clone asks for %s, its source for %s", have, want)
	}
	b.HoldsSum("same", fixture.DiskSum(fixture.DiskImage(24), 40*fixture.MiB), 40*fixture.MiB)

	small := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "small"},
		Spec: cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{
			StorageClassName: fixture.Ptr(fixture.ClassWaits), Resources: fixture.StorageRequest("8Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}},
	}
	cloneOf(b.Namespace)(small)
	err := b.Kube.Create(b.Context(), small)
	if err == nil {
		dv := b.Until("small", "to be refused", func(dv *cdiv1.DataVolume) bool { return fixture.ReadyMessageOf(dv) != "" })
		if !strings.Contains(fixture.ReadyMessageOf(dv), "smaller") {
			t.Errorf("a clone smaller than its source: %s", fixture.ReadyMessageOf(dv))
		}
	} else if !strings.Contains(err.Error(), "smaller") {
		t.Errorf("a clone smaller than its source is refused with %v", err)
	}
}

// TestVolumeCloneWaits: for a source that does not exist, and for one that a pod writes to.
func TestVolumeCloneWaits(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassImmediate, Storage: "40Mi", Change: cloneOf(b.Namespace)})
	dv := b.Until("copy", "to miss its source", func(dv *cdiv1.DataVolume) bool { return fixture.ReadyMessageOf(dv) != "" })
	if !strings.Contains(fixture.ReadyMessageOf(dv), "doesn't exist") {
		t.Errorf("the message is %q", fixture.ReadyMessageOf(dv))
	}
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("golden", cdiv1.Succeeded)
	b.UntilPhase("copy", cdiv1.Succeeded)

	b.Consume("golden", "")
	b.WaitRunning("consumer-golden")
	b.CreateVolume(fixture.Volume{Name: "second", Class: fixture.ClassImmediate, Storage: "40Mi", Change: cloneOf(b.Namespace)})
	dv = b.Until("second", "to wait for the pod", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(fixture.ReadyMessageOf(dv), "consumer-golden")
	})
	if dv.Status.Phase != cdiv1.CloneScheduled {
		t.Errorf("phase is %s while the source is in use", dv.Status.Phase)
	}
	b.Delete("consumer-golden")
	b.UntilPhase("second", cdiv1.Succeeded)
	b.Holds("second", fixture.DiskImage(24), 40*fixture.MiB)
}

// TestVolumeCloneAcrossNamespaces: an administrator may clone from another namespace, and nothing is left there.
func TestVolumeCloneAcrossNamespaces(t *testing.T) {
	t.Parallel()
	from, to := fixture.NewVolumes(t), fixture.NewVolumes(t)
	from.CreateGoldenClaim(fixture.ClassWaits, "")
	atOnce := map[string]string{fixture.BindImmediately: ""}
	to.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassWaits, Storage: "40Mi", Annotations: atOnce, Change: cloneOf(from.Namespace)})
	to.UntilPhase("copy", cdiv1.Succeeded)
	to.Holds("copy", fixture.DiskImage(24), 40*fixture.MiB)
	from.Wait("the source's namespace to be as before", fixture.Patience, func(ctx context.Context) (bool, string) {
		names := from.WorkersOf(ctx)
		return len(names) == 0, strings.Join(names, " ")
	})
	if got := to.ReadVolume("copy").Finalizers; len(got) != 0 {
		t.Errorf("finalizers left: %v", got)
	}
}

// TestVolumeFromDataSource: a DataSource stands for a claim, and says whether it is there.
func TestVolumeFromDataSource(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	ds := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "debian"},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{
			PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"},
		}},
	}
	if err := b.Kube.Create(b.Context(), ds); err != nil {
		t.Fatal(err)
	}
	ready := func(want corev1.ConditionStatus) {
		b.Wait("the DataSource to be ready: "+string(want), fixture.Patience, func(ctx context.Context) (bool, string) {
			if err := b.Kube.Get(ctx, client.ObjectKeyFromObject(ds), ds); err != nil {
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
	b.CreateGoldenClaim(fixture.ClassWaits, "")
	ready(corev1.ConditionTrue)
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassWaits, Storage: "40Mi", Annotations: map[string]string{fixture.BindImmediately: ""},
		Change: func(dv *cdiv1.DataVolume) {
			dv.Spec.Source, dv.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian"}
		}})
	b.UntilPhase("copy", cdiv1.Succeeded)
	b.Holds("copy", fixture.DiskImage(24), 40*fixture.MiB)
}
