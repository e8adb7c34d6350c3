package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// localRun is a running machine whose only disk is in a claim that one node can have, of a class that makes volumes where they are wanted.
func localRun() *run {
	d := disk{name: "root", mode: accessv1.WriteExclusive, pv: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{}}},
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("local"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	i := &kubevirt.VirtualMachineInstance{}
	i.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}}}
	i.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root"}}
	return &run{base: base{instance: i}, disks: []disk{d}, classes: map[string]*storagev1.StorageClass{"local": {Provisioner: "local.example.com",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}}}
}

// TestFixedDisks: each kind of disk that keeps a machine where it is has its own cause, and a claim that all nodes can have, or that can follow, has none.
func TestFixedDisks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *run, d *disk, v *kubevirt.Volume)
		want   state.FixedCause
	}{
		"it follows": {func(*run, *disk, *kubevirt.Volume) {}, ""},
		"all nodes can have it": {func(_ *run, d *disk, _ *kubevirt.Volume) {
			d.claim.Spec.AccessModes, d.mode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, accessv1.WriteShared
		}, ""},
		"a file of the node": {func(_ *run, _ *disk, v *kubevirt.Volume) {
			v.VolumeSource = kubevirt.VolumeSource{HostDisk: &kubevirt.HostDisk{}}
		}, state.CauseHostDisk},
		"being imported": {func(_ *run, d *disk, _ *kubevirt.Volume) { d.early = true }, state.CauseEarly},
		"was being imported at the start": {func(s *run, _ *disk, v *kubevirt.Volume) {
			s.returns.Early = []string{v.Name}
		}, state.CauseEarly},
		"a copy that is not on write": {func(_ *run, _ *disk, v *kubevirt.Volume) {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}
		}, state.CauseCopy},
		"a copy of a claim of one node": {func(_ *run, d *disk, _ *kubevirt.Volume) { d.copied = &kubevirt.DiskCopy{} }, state.CauseClaimCopied},
		"shared":                        {func(_ *run, d *disk, _ *kubevirt.Volume) { d.mode = accessv1.WriteShared }, state.CauseClaimShared},
		"a LUN": {func(s *run, _ *disk, _ *kubevirt.Volume) {
			s.instance.Spec.Domain.Devices.Disks[0].LUN = &kubevirt.LunTarget{}
		}, state.CauseClaimDrive},
		"no class": {func(s *run, _ *disk, _ *kubevirt.Volume) { s.classes = nil }, state.CauseClassMissing},
		"by hand": {func(s *run, _ *disk, _ *kubevirt.Volume) {
			s.classes["local"].Provisioner = "kubernetes.io/no-provisioner"
		}, state.CauseClassStatic},
		"before time": {func(s *run, _ *disk, _ *kubevirt.Volume) { s.classes["local"].VolumeBindingMode = nil }, state.CauseClassImmediate},
		"before time, but of no node": {func(s *run, d *disk, _ *kubevirt.Volume) {
			s.classes["local"].VolumeBindingMode, d.pv.Spec.NodeAffinity = nil, nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := localRun()
			c.change(s, &s.disks[0], &s.instance.Spec.Volumes[0])
			if got, _ := s.fixedDisk(s.instance.Spec.Volumes[0]); got != c.want {
				t.Errorf("got %q, not %q", got, c.want)
			}
			if reason, why := s.fixed(); (reason == state.FixedDisks) != (c.want != "") || (why == "") != (c.want == "") {
				t.Errorf("the machine says %s: %s", reason, why)
			}
		})
	}
}

// TestFixedLauncher: a machine that an earlier version started, and one whose disks were removed since, are kept where they are.
func TestFixedLauncher(t *testing.T) {
	s := localRun()
	s.launcher = &corev1.Pod{}
	if reason, _ := s.fixed(); reason != state.FixedLauncher {
		t.Errorf("of a launcher that cannot send it says %q", reason)
	}
	s.launcher.Spec.Volumes = []corev1.Volume{{Name: render.MoveVolume}}
	if reason, why := s.fixed(); reason != "" {
		t.Errorf("of one that can it says %s: %s", reason, why)
	}
	s.launcher.Annotations = map[string]string{render.AnnDisks: `{"removed": ["data"]}`}
	if _, why := s.fixed(); why != state.OfFixed(state.CauseRemoved).Text("", "") {
		t.Errorf("of one whose disk was removed it says %q", why)
	}
}

// TestFixedAdded: a disk that was added comes along when its guest has it by a launcher that can name it; each other has its own cause.
func TestFixedAdded(t *testing.T) {
	has := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for name, c := range map[string]struct {
		change func(s *run, h *hot)
		want   state.FixedCause
	}{
		"the guest has it":       {func(*run, *hot) {}, ""},
		"it is being filled":     {func(_ *run, h *hot) { h.is = machine.Unbound }, state.CauseAdding},
		"it is not had":          {func(_ *run, h *hot) { h.access = machine.Taken }, state.CauseAdding},
		"its pod is on the way":  {func(_ *run, h *hot) { h.holder = nil }, state.CauseAdding},
		"it is being removed":    {func(s *run, h *hot) { h.wanted, s.instance.Spec.Volumes = false, nil }, state.CauseAdding},
		"a copy is kept there":   {func(s *run, h *hot) { h.keep, s.instance.Spec.Volumes = &launcherapi.KeepOrder{}, nil }, state.CauseKeeping},
		"a copy was kept there":  {func(s *run, h *hot) { h.keep, h.holder, s.instance.Spec.Volumes = &launcherapi.KeepOrder{}, nil, nil }, ""},
		"a network disk":         {func(_ *run, h *hot) { h.pods.Network = &launcherapi.Added{} }, state.CauseAddedNetwork},
		"by an earlier launcher": {func(s *run, _ *hot) { s.launcher.Spec.Volumes = s.launcher.Spec.Volumes[:1] }, state.CauseAdded},
		"no class":               {func(s *run, _ *hot) { s.classes = nil }, state.CauseClassMissing},
	} {
		t.Run(name, func(t *testing.T) {
			s := localRun()
			s.launcher = &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: render.MoveVolume}, {Name: render.SetsVolume}}}}
			h := &hot{disk: s.disks[0], wanted: true, holder: has.DeepCopy()}
			h.is, h.access = machine.Ready, machine.Have
			s.disks, s.hot = nil, []*hot{h}
			c.change(s, h)
			reason, why := s.fixed()
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
	target, err := render.Machine{Instance: s.instance}.Pod(render.Launcher)
	if err != nil {
		t.Fatal(err)
	}
	v := &move{run: s, source: &corev1.Pod{}, target: target, migration: &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{UID: "m"}}}
	if got := v.unlike(); got != "" {
		t.Errorf("of the same disks it says that %s differ", got)
	}
	s.instance = s.instance.DeepCopy()
	s.instance.Spec.Volumes[0].Name = "more"
	s.disks = nil
	if got, want := v.text(state.MigrationRow{Reason: state.MigrationRefused}), state.OfFixed(state.CauseUnlike).Text("", "more, root"); got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}
