package clonesource

import (
	"context"
	"errors"
	"fmt"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// museum is a cluster with a few objects of each kind, by namespace and name.
type museum map[string]runtime.Object

func (m museum) Read(_ context.Context, namespace, name string, into runtime.Object) (bool, error) {
	switch o := into.(type) {
	case *corev1.PersistentVolumeClaim:
		return show(m, o, "claim", namespace, name), nil
	case *volumesnapshot.Snapshot:
		return show(m, o, "snapshot", namespace, name), nil
	case *volumesnapshot.Content:
		return show(m, o, "content", namespace, name), nil
	case *cdiv1.DataSource:
		return show(m, o, "source", namespace, name), nil
	case *corev1.PersistentVolume:
		return show(m, o, "volume", namespace, name), nil
	}
	return false, fmt.Errorf("nobody reads a %T here", into)
}

func (museum) ReadAll(context.Context, string, map[string]string, runtime.Object) error { return nil }

func show[T any](m museum, into *T, kind, namespace, name string) bool {
	o, ok := any(m[kind+" "+namespace+"/"+name]).(*T)
	if ok {
		*into = *o
	}
	return ok
}

// leads returns a DataSource that stands for something.
func leads(namespace, name string, to cdiv1.DataSourceSource) *cdiv1.DataSource {
	return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: cdiv1.DataSourceSpec{Source: to}}
}

func toSource(namespace, name string) cdiv1.DataSourceSource {
	return cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: namespace, Name: name}}
}

func toClaim(namespace, name string) cdiv1.DataSourceSource {
	return cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
}

// TestWhatAVolumeIsClonedFrom says which answer is right where those who ask used to disagree: admission, which allows the clone,
// followed a DataSource into another namespace; the engine, which makes it, refuses that.
func TestWhatAVolumeIsClonedFrom(t *testing.T) {
	m := museum{
		"source golden/os":     leads("golden", "os", toClaim("images", "fedora")),
		"source golden/next":   leads("golden", "next", toSource("golden", "os")),
		"source golden/far":    leads("golden", "far", toSource("golden", "next")),
		"source golden/self":   leads("golden", "self", toSource("golden", "self")),
		"source golden/dead":   leads("golden", "dead", toSource("golden", "gone")),
		"source golden/abroad": leads("golden", "abroad", toSource("team", "theirs")),
		"source team/theirs":   leads("team", "theirs", toClaim("team", "secret")),
		"source golden/empty":  leads("golden", "empty", cdiv1.DataSourceSource{}),
		"source golden/beside": leads("golden", "beside", toClaim("", "here")),
		"source golden/cut":    leads("golden", "cut", cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "monday"}}),
	}
	by := func(name string) cdiv1.DataVolumeSpec {
		return cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: ptr.To("golden"), Name: name}}
	}
	for name, row := range map[string]struct {
		spec  cdiv1.DataVolumeSpec
		want  string // kind namespace/name; empty: the volume is no clone
		lacks string
	}{
		"a claim":             {cdiv1.DataVolumeSpec{Source: At(Claim, "golden", "fedora").Source()}, "PersistentVolumeClaim golden/fedora", ""},
		"a claim beside":      {cdiv1.DataVolumeSpec{Source: At(Claim, "", "fedora").Source()}, "PersistentVolumeClaim team/fedora", ""},
		"a snapshot":          {cdiv1.DataVolumeSpec{Source: At(Snapshot, "golden", "monday").Source()}, "VolumeSnapshot golden/monday", ""},
		"an import":           {cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}}, "", ""},
		"another populator":   {cdiv1.DataVolumeSpec{}, "", ""},
		"a DataSource":        {by("os"), "PersistentVolumeClaim images/fedora", ""},
		"of a snapshot":       {by("cut"), "VolumeSnapshot golden/monday", ""},
		"of one beside it":    {by("beside"), "PersistentVolumeClaim golden/here", ""},
		"of another":          {by("next"), "PersistentVolumeClaim images/fedora", ""},
		"of another and on":   {by("far"), "PersistentVolumeClaim golden/far", "DataSource golden/far stands for one that stands for another"},
		"of itself":           {by("self"), "PersistentVolumeClaim golden/self", "DataSource golden/self names itself"},
		"of one that is gone": {by("dead"), "PersistentVolumeClaim golden/gone", "there is no DataSource golden/gone"},
		"that is gone":        {by("none"), "PersistentVolumeClaim golden/none", "there is no DataSource golden/none"},
		"of nothing":          {by("empty"), "PersistentVolumeClaim golden/empty", "DataSource golden/empty names no source in its own namespace"},
		"of one elsewhere":    {by("abroad"), "PersistentVolumeClaim golden/abroad", "DataSource golden/abroad names no source in its own namespace"},
		"of another kind": {cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "Image", Name: "x"}}, "PersistentVolumeClaim team/x",
			"nobody follows a sourceRef to a Image"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Resolve(t.Context(), m, "team", &row.spec)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if at, ok := OfSource("team", r.Source); ok {
				got = at.Kind + " " + at.NamespacedName.String()
			}
			if got != row.want || r.Lacks != row.lacks {
				t.Errorf("got %q, %q; want %q, %q", got, r.Lacks, row.want, row.lacks)
			}
		})
	}
}

// TestHowLarge says which answer is right where those who ask used to disagree: some did not know the disk that was measured on the
// claim, and took a snapshot's mode from an annotation alone, or not from there at all.
func TestHowLarge(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	claim := func(phase corev1.PersistentVolumeClaimPhase, capacity corev1.ResourceList, notes map[string]string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: notes}}
		c.Spec.Resources.Requests, c.Status.Phase, c.Status.Capacity = size("4Gi"), phase, capacity
		c.Spec.StorageClassName = ptr.To("fast")
		return c
	}
	onBlock := claim(corev1.ClaimBound, size("5Gi"), nil)
	onBlock.Spec.VolumeMode = &block
	snap := func(content, mode string) *volumesnapshot.Snapshot {
		s := &volumesnapshot.Snapshot{Status: &snapshotv1.VolumeSnapshotStatus{
			RestoreSize: ptr.To(resource.MustParse("6Gi")), BoundVolumeSnapshotContentName: &content}}
		if mode != "" {
			s.Annotations = map[string]string{volumesnapshot.AnnMode: mode}
		}
		return s
	}
	m := museum{
		"claim golden/plain":      claim(corev1.ClaimBound, size("5Gi"), nil),
		"claim golden/measured":   claim(corev1.ClaimBound, size("5Gi"), map[string]string{names.DiskSize: "1048576"}),
		"claim golden/mismarked":  claim(corev1.ClaimBound, size("5Gi"), map[string]string{names.DiskSize: "large"}),
		"claim golden/block":      onBlock,
		"claim golden/unbound":    claim(corev1.ClaimPending, nil, nil),
		"claim golden/unsaid":     claim(corev1.ClaimBound, nil, nil),
		"snapshot golden/stored":  snap("on-block", "Filesystem"),
		"snapshot golden/noted":   snap("", "Block"),
		"snapshot golden/unknown": snap("gone", ""),
		"snapshot golden/waiting": &volumesnapshot.Snapshot{},
		"content /on-block":       &volumesnapshot.Content{Spec: snapshotv1.VolumeSnapshotContentSpec{SourceVolumeMode: &block}},
	}
	for name, row := range map[string]struct {
		at   Ref
		want string // capacity, mode, class, disk
		disk int64
	}{
		"a claim":                          {At(Claim, "golden", "plain"), "5Gi Filesystem fast 0", 1<<63 - 1},
		"whose disk was measured":          {At(Claim, "golden", "measured"), "5Gi Filesystem fast 1048576", 1 << 20},
		"whose disk was noted as nonsense": {At(Claim, "golden", "mismarked"), "5Gi Filesystem fast 0", 1<<63 - 1},
		"a device":                         {At(Claim, "golden", "block"), "5Gi Block fast 0", 5 << 30},
		"one that is not bound":            {At(Claim, "golden", "unbound"), "", 0},
		"one whose volume says no size":    {At(Claim, "golden", "unsaid"), "4Gi Filesystem fast 0", 1<<63 - 1},
		"one that is gone":                 {At(Claim, "golden", "gone"), "", 0},
		"a snapshot, as the storage says":  {At(Snapshot, "golden", "stored"), "6Gi Block  0", 6 << 30},
		"a snapshot, as its taker says":    {At(Snapshot, "golden", "noted"), "6Gi Block  0", 6 << 30},
		"a snapshot of which nobody says":  {At(Snapshot, "golden", "unknown"), "6Gi Filesystem  0", 1<<63 - 1},
		"a snapshot that is not taken":     {At(Snapshot, "golden", "waiting"), "", 0},
		"another kind":                     {At(corev1.SchemeGroupVersion.WithKind("Secret"), "golden", "plain"), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Find(t.Context(), m, row.at)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if s := found.Measure(); s != nil {
				got = fmt.Sprintf("%s %s %s %s", s.Capacity.String(), s.VolumeMode, s.Class, s.Disk.String())
			}
			if got != row.want || found.Disk() != row.disk {
				t.Errorf("got %q, a disk of %d; want %q, a disk of %d", got, found.Disk(), row.want, row.disk)
			}
		})
	}
}

// TestWhere: a claim's data is where its volume is, a snapshot's where its driver says.
func TestWhere(t *testing.T) {
	there := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	pv := func(of *corev1.ObjectReference) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: of, NodeAffinity: &corev1.VolumeNodeAffinity{Required: there}}}
	}
	claim := func(volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "1"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	content := &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"snapshot.storage.kubernetes.io/managed-by": "node1"}}}
	m := museum{"volume /anywhere": &corev1.PersistentVolume{}, "volume /free": pv(nil),
		"volume /here":     pv(&corev1.ObjectReference{Namespace: "team", Name: "disk", UID: "1"}),
		"volume /reserved": pv(&corev1.ObjectReference{Namespace: "team", Name: "disk"}),
		"volume /theirs":   pv(&corev1.ObjectReference{Namespace: "golden", Name: "disk", UID: "2"}),
		"volume /promised": pv(&corev1.ObjectReference{Namespace: "golden", Name: "disk"})}
	for name, row := range map[string]struct {
		found Found
		want  bool
	}{
		"a claim on a node":       {Found{Claim: claim("here")}, true},
		"a claim everywhere":      {Found{Claim: claim("anywhere")}, false},
		"a claim without volume":  {Found{Claim: claim("")}, false},
		"a volume that is gone":   {Found{Claim: claim("gone")}, false},
		"a reserved volume":       {Found{Claim: claim("reserved")}, true},
		"somebody else's volume":  {Found{Claim: claim("theirs")}, false},
		"reserved for another":    {Found{Claim: claim("promised")}, false},
		"a volume of nobody":      {Found{Claim: claim("free")}, false},
		"a snapshot on a node":    {Found{Snapshot: &volumesnapshot.Snapshot{}, Content: content}, true},
		"a snapshot everywhere":   {Found{Snapshot: &volumesnapshot.Snapshot{}, Content: &volumesnapshot.Content{}}, false},
		"a snapshot not yet made": {Found{Snapshot: &volumesnapshot.Snapshot{}}, false},
	} {
		if home, err := row.found.Home(t.Context(), m); err != nil || (home != nil) != row.want {
			t.Errorf("%s: %v, %v; want a place: %t", name, home, err, row.want)
		}
	}
}

type verifier struct {
	answer error
	wanted token.Grant
}

func (v *verifier) Verify(_ context.Context, _ string, wanted token.Grant) error {
	v.wanted = wanted
	return v.answer
}

// TestAuthorized: what a proof lacks is a refusal for the user; that it could not be checked is not.
func TestAuthorized(t *testing.T) {
	broken := errors.New("the key cannot be read")
	for answer, forbidden := range map[error]bool{
		nil: false, token.ErrMalformed: true, token.ErrForged: true, token.ErrOther: true, token.ErrRevoked: true, broken: false,
	} {
		v := &verifier{answer: answer}
		ref := &cdiv1.DataVolumeSourceRef{Name: "os"}
		err := Authorized(t.Context(), v, "proof", At(Snapshot, "golden", "monday"), token.Object{Namespace: "team", Name: "disk"}, ref)
		if errors.Is(err, ErrForbidden) != forbidden || !errors.Is(err, answer) {
			t.Errorf("%v becomes %v", answer, err)
		}
		if v.wanted.Source != (token.Object{Kind: "VolumeSnapshot", Namespace: "golden", Name: "monday"}) || *v.wanted.Via != (token.Object{Namespace: "team", Name: "os"}) {
			t.Errorf("asked for %+v", v.wanted)
		}
	}
}
