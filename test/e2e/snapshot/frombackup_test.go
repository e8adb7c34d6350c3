//go:build e2e

package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// moments is a set of backups of the test guest's disk, which changes from one to the next, and the sum that a part of it has at each.
type moments struct {
	dir  string
	sums []string
}

const (
	changedAt = testguest.DataOffset
	changedBy = 8 << 20
	chained   = 10
)

// backUp writes a full backup and increments of machine web into a set.
func backUp(t *testing.T, dir string, vm *kubevirt.VirtualMachine) *moments {
	t.Helper()
	disk, err := os.ReadFile(filepath.Join(fixture.GuestDir, testguest.Raw))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	m, rng := &moments{dir: dir}, rand.New(rand.NewPCG(1, 2))
	for n := range chained {
		var changed [][2]int64
		p := backup.Plan{Checkpoint: fmt.Sprintf("b%d", n), Created: time.Unix(int64(1_700_000_000+n), 0), Machine: machine}
		if n > 0 {
			p.Parent = fmt.Sprintf("b%d", n-1)
			for range 5 {
				at := changedAt + int64(rng.IntN(changedBy>>16))<<16
				copy(disk[at:at+1<<16], bytes.Repeat([]byte{byte(n)}, 1<<16))
				changed = append(changed, [2]int64{at, 1 << 16})
			}
		}
		now := bytes.Clone(disk)
		s := backup.Source{Name: "root", Disk: encode.Disk{ReaderAt: bytes.NewReader(now), Size: int64(len(now)), Data: func(_ context.Context, from, to int64) ([][2]int64, error) {
			return within(filled(now), from, to), nil
		}}}
		if n > 0 {
			s.Changed = func(_ context.Context, from, to int64) ([][2]int64, error) { return within(changed, from, to), nil }
		}
		p.Disks = []backup.Source{s}
		if _, err := backup.Write(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(now[changedAt : changedAt+changedBy])
		m.sums = append(m.sums, hex.EncodeToString(sum[:]))
	}
	m.readable(t)
	return m
}

// readable lets the worker's user read the set, whatever the umask is.
func (m *moments) readable(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o777)
		}
		return os.Chmod(path, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// filled are the places of a disk that have anything but zeroes.
func filled(disk []byte) (out [][2]int64) {
	const step = 1 << 16
	for at := 0; at < len(disk); at += step {
		if n := min(step, len(disk)-at); !zeropage.IsZero(disk[at : at+n]) {
			out = append(out, [2]int64{int64(at), int64(n)})
		}
	}
	return out
}

func within(places [][2]int64, from, to int64) (out [][2]int64) {
	for _, p := range places {
		if begin, end := max(p[0], from), min(p[0]+p[1], to); begin < end {
			out = append(out, [2]int64{begin, end - begin})
		}
	}
	return out
}

// backedUp is the machine that was backed up, as a manifest has it. It is not in the cluster.
func backedUp(y *fixture.Machines) *kubevirt.VirtualMachine {
	vm := y.TinyMachine("web")
	vm.TypeMeta = metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"}
	spec := &vm.Spec.Template.Spec
	spec.Domain.Memory.Guest = new(resource.MustParse("192Mi"))
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root", Serial: "root"}}
	spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "web-root"}}}}
	return vm
}

// TestRestoreFromBackup: a machine is made of a moment in a chain of ten and boots from it before its disk is full; what cannot work is refused and makes nothing; a
// link that is wrong is refused before anything is made, and one whose data is wrong fails the disk; a claim of another namespace is read through an export.
func TestRestoreFromBackup(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	at := y.SharedClaim("backups")
	m := backUp(t, filepath.Join(at, "web"), backedUp(y))
	virtctl := fixture.NewVirtctl(t, y.Env)
	fixture.HasTexts(t, virtctl.Must("vm", "restore", "web", "--from", "backups/web", "--list"), "b0", "b9", "root")

	virtctl.Must("vm", "restore", "web", "--from", "backups/web", "--at", "b6", "--as", "again", "--start", "--early", "--storage-class", fixture.ClassDisk)
	again := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "again"}}

	refused(y, virtctl, "web")
	wrong(y, virtctl, m)

	y.WaitStatus(again, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(again, "berth-guest: ready")
	if got := y.AnswerTo(again, fmt.Sprintf("sha256 serial=root %d %d", changedAt, changedBy)); got != m.sums[6] {
		t.Errorf("the guest reads %s, and moment b6 has %s", got, m.sums[6])
	}
	abroad(y, m)
}

// refused: what the cluster would not take is said, and nothing is made.
func refused(y *fixture.Machines, virtctl *fixture.Virtctl, machine string) {
	y.T.Helper()
	tight := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tight"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		fixture.ClassImmediate + ".storageclass.storage.k8s.io/requests.storage": resource.MustParse("100Mi")}}}
	if _, err := y.Client.CoreV1().ResourceQuotas(y.Namespace).Create(y.Context(), tight, metav1.CreateOptions{}); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("the quota to be counted", time.Minute, func(ctx context.Context) (bool, string) {
		q, err := y.Client.CoreV1().ResourceQuotas(y.Namespace).Get(ctx, "tight", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0, fmt.Sprint(err)
	})
	from := []string{"vm", "restore", machine, "--from", "backups/web"}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--storage-class", fixture.ClassImmediate}, "quota tight allows"},
		{[]string{"--storage-class", "gone"}, "there is no storage class gone"},
		{[]string{"--as", "again", "--storage-class", fixture.ClassDisk}, "already"},
		{[]string{"--at", "b77", "--storage-class", fixture.ClassDisk}, "there is no such file"},
	} {
		r := virtctl.Run(append(from, c.args...)...)
		if r.Code == 0 || !strings.Contains(r.Err, c.says) {
			y.T.Errorf("%v ended with %d: %s, want %q", c.args, r.Code, r.Err, c.says)
		}
	}
	if left := y.Kubectl("get", "vm,dv,volumebackupsources", "-o", "name"); strings.Contains(left, "/"+machine) {
		y.T.Errorf("refused, and made:\n%s", left)
	}
}

// wrong: a manifest of another chain is refused by virtctl; an image that was changed fails the disk, and the message names the file.
func wrong(y *fixture.Machines, virtctl *fixture.Virtctl, m *moments) {
	y.T.Helper()
	torn := filepath.Join(filepath.Dir(m.dir), "torn")
	if err := os.CopyFS(torn, os.DirFS(m.dir)); err != nil {
		y.T.Fatal(err)
	}
	(&moments{dir: torn}).readable(y.T)
	image, err := os.OpenFile(filepath.Join(torn, "b3", "root.qcow2"), os.O_RDWR, 0)
	if err != nil {
		y.T.Fatal(err)
	}
	info, err := image.Stat()
	if err == nil {
		_, err = image.WriteAt([]byte("changed"), info.Size()-100)
	}
	if err != nil || image.Close() != nil {
		y.T.Fatal(err)
	}
	virtctl.Must("vm", "restore", "web", "--from", "backups/torn", "--at", "b5", "--as", "torn", "--start", "--storage-class", fixture.ClassDisk)
	y.Wait("the disk of the torn chain to fail", fixture.BootPatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "dv", "torn-root", "-o", "jsonpath={.status}", "--ignore-not-found")
		return strings.Contains(said, "b3/root.qcow2") && strings.Contains(said, "Failed"), said
	})
	if err := os.Remove(filepath.Join(torn, "b2", backup.ManifestFile)); err != nil {
		y.T.Fatal(err)
	}
	if err := os.Rename(filepath.Join(torn, "b1", backup.ManifestFile), filepath.Join(torn, "b2", backup.ManifestFile)); err != nil {
		y.T.Fatal(err)
	}
	r := virtctl.Run("vm", "restore", "web", "--from", "backups/torn", "--at", "b5", "--as", "swapped", "--storage-class", fixture.ClassDisk)
	if r.Code == 0 || !strings.Contains(r.Err, "b2/manifest.json is not the one that is meant") {
		y.T.Errorf("a swapped link: %d %s", r.Code, r.Err)
	}
	y.Kubectl("delete", "vm", "torn", "--wait=false")
}

// abroad: a disk is filled in another namespace, which cannot mount the claim.
func abroad(y *fixture.Machines, m *moments) {
	y.T.Helper()
	other := fixture.NewMachines(y.T)
	virtctl := fixture.NewVirtctl(y.T, other.Env)
	virtctl.Must("vm", "restore", "web", "--from", "backups/web", "--from-namespace", y.Namespace, "--at", "b9", "--start", "--storage-class", fixture.ClassDisk)
	web := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: "web"}}
	other.WaitStatus(web, kubevirt.StatusRunning, fixture.BootPatience)
	other.GuestSays(web, "berth-guest: ready")
	if got := other.AnswerTo(web, fmt.Sprintf("sha256 serial=root %d %d", changedAt, changedBy)); got != m.sums[9] {
		y.T.Errorf("the guest reads %s, and moment b9 has %s", got, m.sums[9])
	}
}
