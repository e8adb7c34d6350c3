package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/migration"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// localRun is a running machine whose only disk is in a claim that one node can have, of a class that makes volumes where they are wanted.
func localRun() *observed.Instance {
	d := diskstate.Disk{Name: "root", Mode: accessv1.WriteExclusive, PV: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{}}},
		Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("local"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	i := &kubevirt.VirtualMachineInstance{}
	i.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}}}
	i.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root"}}
	return &observed.Instance{Run: diskstate.Run{Object: i}, Disks: []diskstate.Disk{d}, Classes: map[string]*storagev1.StorageClass{"local": {Provisioner: "local.example.com",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}}}
}

// TestFixedDisks: each kind of disk that keeps a machine where it is has its own cause, and a claim that all nodes can have, or that can follow, has none.
func TestFixedDisks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *observed.Instance, d *diskstate.Disk, v *kubevirt.Volume)
		want   state.FixedCause
	}{
		"it follows": {func(*observed.Instance, *diskstate.Disk, *kubevirt.Volume) {}, ""},
		"all nodes can have it": {func(_ *observed.Instance, d *diskstate.Disk, _ *kubevirt.Volume) {
			d.Claim.Spec.AccessModes, d.Mode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, accessv1.WriteShared
		}, ""},
		"a file of the node": {func(_ *observed.Instance, _ *diskstate.Disk, v *kubevirt.Volume) {
			v.VolumeSource = kubevirt.VolumeSource{HostDisk: &kubevirt.HostDisk{}}
		}, state.CauseHostDisk},
		"being imported": {func(_ *observed.Instance, d *diskstate.Disk, _ *kubevirt.Volume) { d.Early = true }, state.CauseEarly},
		"was being imported at the start": {func(s *observed.Instance, _ *diskstate.Disk, v *kubevirt.Volume) {
			s.Returns.Early = []string{v.Name}
		}, state.CauseEarly},
		"a copy that is not on write": {func(_ *observed.Instance, _ *diskstate.Disk, v *kubevirt.Volume) {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}
		}, state.CauseCopy},
		"a clone that is not complete": {func(s *observed.Instance, d *diskstate.Disk, v *kubevirt.Volume) {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}
			d.Copied, d.Holds = v.Copy, true
			s.Returns.Copies = map[string]launcherapi.Copy{v.Name: {Size: 1 << 30}}
		}, state.CauseCopy},
		"a clone of a claim of one node that is complete": {func(s *observed.Instance, d *diskstate.Disk, v *kubevirt.Volume) {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}
			d.Copied = v.Copy
			s.Returns.Copies = map[string]launcherapi.Copy{v.Name: {Size: 1 << 30, LetGo: true}}
			s.Launcher = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{render.AnnGo: "yes"}}, Spec: corev1.PodSpec{NodeName: "node1",
				Volumes: []corev1.Volume{{Name: render.MoveVolume}}}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
		}, ""},
		"a copy of a claim of one node": {func(_ *observed.Instance, d *diskstate.Disk, _ *kubevirt.Volume) { d.Copied = &kubevirt.DiskCopy{} }, state.CauseClaimCopied},
		"shared":                        {func(_ *observed.Instance, d *diskstate.Disk, _ *kubevirt.Volume) { d.Mode = accessv1.WriteShared }, state.CauseClaimShared},
		"a LUN": {func(s *observed.Instance, _ *diskstate.Disk, _ *kubevirt.Volume) {
			s.Object.Spec.Domain.Devices.Disks[0].LUN = &kubevirt.LunTarget{}
		}, state.CauseClaimDrive},
		"no class": {func(s *observed.Instance, _ *diskstate.Disk, _ *kubevirt.Volume) { s.Classes = nil }, state.CauseClassMissing},
		"by hand": {func(s *observed.Instance, _ *diskstate.Disk, _ *kubevirt.Volume) {
			s.Classes["local"].Provisioner = "kubernetes.io/no-provisioner"
		}, state.CauseClassStatic},
		"before time": {func(s *observed.Instance, _ *diskstate.Disk, _ *kubevirt.Volume) {
			s.Classes["local"].VolumeBindingMode = nil
		}, state.CauseClassImmediate},
		"before time, but of no node": {func(s *observed.Instance, d *diskstate.Disk, _ *kubevirt.Volume) {
			s.Classes["local"].VolumeBindingMode, d.PV.Spec.NodeAffinity = nil, nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := localRun()
			c.change(s, &s.Disks[0], &s.Object.Spec.Volumes[0])
			if got, _ := s.FixedDisk(s.Object.Spec.Volumes[0]); got != c.want {
				t.Errorf("got %q, not %q", got, c.want)
			}
			if reason, why := s.Fixed(); (reason == state.FixedDisks) != (c.want != "") || (why == "") != (c.want == "") {
				t.Errorf("the machine says %s: %s", reason, why)
			}
		})
	}
}

// TestFixedLauncher: a machine that an earlier version started, and one whose disks were removed since, are kept where they are.
func TestFixedLauncher(t *testing.T) {
	s := localRun()
	s.Launcher = &corev1.Pod{}
	if reason, _ := s.Fixed(); reason != state.FixedLauncher {
		t.Errorf("of a launcher that cannot send it says %q", reason)
	}
	s.Launcher.Spec.Volumes = []corev1.Volume{{Name: render.MoveVolume}}
	if reason, why := s.Fixed(); reason != "" {
		t.Errorf("of one that can it says %s: %s", reason, why)
	}
	s.Launcher.Annotations = map[string]string{render.AnnDisks: `{"removed": ["data"]}`}
	if _, why := s.Fixed(); why != state.OfFixed(state.CauseRemoved).Text("", "") {
		t.Errorf("of one whose disk was removed it says %q", why)
	}
}

// TestFixedAdded: a disk that was added comes along when its guest has it by a launcher that can name it; each other has its own cause.
func TestFixedAdded(t *testing.T) {
	has := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for name, c := range map[string]struct {
		change func(s *observed.Instance, h *observed.Added)
		want   state.FixedCause
	}{
		"the guest has it":      {func(*observed.Instance, *observed.Added) {}, ""},
		"it is being filled":    {func(_ *observed.Instance, h *observed.Added) { h.State = machine.Unbound }, state.CauseAdding},
		"it is not had":         {func(_ *observed.Instance, h *observed.Added) { h.Access = machine.Taken }, state.CauseAdding},
		"its pod is on the way": {func(_ *observed.Instance, h *observed.Added) { h.Holder = nil }, state.CauseAdding},
		"it is being removed":   {func(s *observed.Instance, h *observed.Added) { h.Wanted, s.Object.Spec.Volumes = false, nil }, state.CauseAdding},
		"a copy is kept there": {func(s *observed.Instance, h *observed.Added) {
			h.Keep, s.Object.Spec.Volumes = &launcherapi.KeepOrder{}, nil
		}, state.CauseKeeping},
		"a copy was kept there": {func(s *observed.Instance, h *observed.Added) {
			h.Keep, h.Holder, s.Object.Spec.Volumes = &launcherapi.KeepOrder{}, nil, nil
		}, ""},
		"a network disk":         {func(_ *observed.Instance, h *observed.Added) { h.Pods.Network = &launcherapi.Added{} }, state.CauseAddedNetwork},
		"by an earlier launcher": {func(s *observed.Instance, _ *observed.Added) { s.Launcher.Spec.Volumes = s.Launcher.Spec.Volumes[:1] }, state.CauseAdded},
		"no class":               {func(s *observed.Instance, _ *observed.Added) { s.Classes = nil }, state.CauseClassMissing},
	} {
		t.Run(name, func(t *testing.T) {
			s := localRun()
			s.Launcher = &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: render.MoveVolume}, {Name: render.SetsVolume}}}}
			h := &observed.Added{Disk: s.Disks[0], Wanted: true, Holder: has.DeepCopy()}
			h.State, h.Access = machine.Ready, machine.Have
			s.Disks, s.Added = nil, []*observed.Added{h}
			c.change(s, h)
			reason, why := s.Fixed()
			want, detail := "", ""
			if c.want != "" {
				if c.want == state.CauseClassMissing {
					detail = "root"
				}
				want = state.OfFixed(c.want).Text("root", detail)
			}
			if why != want || (reason == state.FixedDisks) != (want != "") {
				t.Errorf("the machine says %s: %q, not %q", reason, why, want)
			}
		})
	}
}

// TestFixedUnlike: a target that was made before a disk was added, or removed, is not sent to, and which disks differ is said.
func TestFixedUnlike(t *testing.T) {
	s := localRun()
	target, err := render.Machine{Instance: s.Object}.Pod(render.Launcher)
	if err != nil {
		t.Fatal(err)
	}
	v := &migration.Move{Run: s, Source: &corev1.Pod{}, Target: target, Migration: &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{UID: "m"}}}
	if got := v.Unlike(); got != "" {
		t.Errorf("of the same disks it says that %s differ", got)
	}
	s.Object = s.Object.DeepCopy()
	s.Object.Spec.Volumes[0].Name = "more"
	s.Disks = nil
	if got, want := v.Text(state.MigrationRow{Reason: state.MigrationRefused}), state.OfFixed(state.CauseUnlike).Text("", "more, root"); got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}
