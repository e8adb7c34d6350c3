//go:build apiserver

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/token"
)

func cloneOf(namespace, name string) string {
	return dv(fmt.Sprintf("source: {pvc: {namespace: %s, name: %s}}, storage: {}", namespace, name))
}

func pvcGrant(name, target string) token.Grant {
	return token.Grant{
		Source: token.Object{Kind: "PersistentVolumeClaim", Namespace: golden, Name: name},
		Target: token.Object{Namespace: team, Name: target},
		By:     token.User{Name: "alice"},
	}
}

// viaGrant is pvcGrant for a volume that names the DataSource golden/os.
func viaGrant(ds, name, target string) token.Grant {
	g := pvcGrant(name, target)
	g.Via = &token.Object{Namespace: golden, Name: ds}
	return g
}

// TestCloneAuthorisation asks the real authorizer about four users who differ in what they may do in the source's
// namespace.
func TestCloneAuthorisation(t *testing.T) {
	source := object(`{kind: DataSource, metadata: {name: os, namespace: golden}, spec: {source: {pvc: {namespace: golden, name: fedora}}}}`)
	create(t, admin, source)
	create(t, admin, object(`{kind: DataSource, metadata: {name: next, namespace: golden}, spec: {source: {dataSource: {namespace: golden, name: os}}}}`))
	create(t, admin, object(`{kind: DataSource, metadata: {name: os, namespace: team}, spec: {source: {dataSource: {namespace: golden, name: os}}}}`))
	chained := dv("sourceRef: {kind: DataSource, namespace: golden, name: next}, storage: {}")
	abroad := dv("sourceRef: {kind: DataSource, name: os}, storage: {}") // which nobody follows: a DataSource stands for one beside it
	create(t, admin, object(`{kind: DataSource, metadata: {name: ours, namespace: team}, spec: {source: {pvc: {namespace: golden, name: fedora}}}}`))
	teamGrant := func(name, target string) token.Grant {
		g := pvcGrant(name, target)
		g.Via = &token.Object{Namespace: team, Name: "ours"}
		return g
	}
	byRef := dv("sourceRef: {kind: DataSource, namespace: golden, name: os}, storage: {}")
	snapshot := dv("source: {snapshot: {namespace: golden, name: fedora}}, storage: {}")
	denied := func(user string) string {
		return fmt.Sprintf("User %s has insufficient permissions in clone source namespace golden", user)
	}
	for name, row := range map[string]struct {
		user, object, refused string
		proves                []token.Grant // what the proof must cover
		not                   []token.Grant // and what it must not
	}{
		"alice, a claim": {"alice", cloneOf(golden, "fedora"), "",
			[]token.Grant{pvcGrant("fedora", "v")}, []token.Grant{pvcGrant("debian", "v"), pvcGrant("fedora", "w")}},
		"alice, a snapshot": {"alice", snapshot, "", []token.Grant{{
			Source: token.Object{Kind: "VolumeSnapshot", Namespace: golden, Name: "fedora"}, Target: token.Object{Namespace: team, Name: "v"}}},
			[]token.Grant{pvcGrant("fedora", "v")}},
		"alice, a DataSource that will move on": {"alice", byRef, "", []token.Grant{viaGrant("os", "fedora", "v"), viaGrant("os", "newer", "v")},
			[]token.Grant{pvcGrant("newer", "v"), viaGrant("other", "newer", "v"), viaGrant("os", "fedora", "w")}},
		"alice, a chain of DataSources": {"alice", chained, "", []token.Grant{viaGrant("next", "fedora", "v"), viaGrant("next", "newer", "v")},
			[]token.Grant{pvcGrant("newer", "v"), viaGrant("os", "newer", "v")}},
		"alice, a chain across namespaces": {"alice", abroad, "", nil,
			[]token.Grant{pvcGrant("fedora", "v"), pvcGrant("newer", "v"), viaGrant("os", "fedora", "v")}},
		"alice, a DataSource of the team": {"alice", dv("sourceRef: {kind: DataSource, name: ours}, storage: {}"), "",
			[]token.Grant{pvcGrant("fedora", "v"), teamGrant("fedora", "v")}, []token.Grant{teamGrant("newer", "v"), pvcGrant("newer", "v")}},
		"alice, a DataSource to come": {"alice", dv("sourceRef: {kind: DataSource, namespace: golden, name: later}, storage: {}"), "",
			[]token.Grant{viaGrant("later", "anything", "v")}, []token.Grant{pvcGrant("anything", "v")}},
		"bob":                          {"bob", cloneOf(golden, "fedora"), denied("bob"), nil, nil},
		"bob, a snapshot":              {"bob", snapshot, denied("bob"), nil, nil},
		"bob, a DataSource":            {"bob", byRef, denied("bob"), nil, nil},
		"bob, a chain":                 {"bob", chained, denied("bob"), nil, nil},
		"bob, across namespaces":       {"bob", abroad, "", nil, []token.Grant{pvcGrant("fedora", "v"), viaGrant("os", "fedora", "v")}},
		"bob, at home":                 {"bob", cloneOf(team, "fedora"), "", nil, []token.Grant{pvcGrant("fedora", "v")}},
		"bob, after a restore":         {"bob", annotate(cloneOf(golden, "fedora"), "storage.prePopulated: v"), "", nil, []token.Grant{pvcGrant("fedora", "v")}},
		"carol, the claim she may":     {"carol", cloneOf(golden, "fedora"), "", []token.Grant{pvcGrant("fedora", "v")}, nil},
		"carol, another":               {"carol", cloneOf(golden, "debian"), denied("carol"), nil, nil},
		"carol, a DataSource":          {"carol", byRef, "", []token.Grant{viaGrant("os", "fedora", "v")}, []token.Grant{viaGrant("os", "newer", "v")}},
		"dave, who may run pods there": {"dave", cloneOf(golden, "fedora"), "", []token.Grant{pvcGrant("fedora", "v")}, nil},
		"dave, a snapshot there":       {"dave", snapshot, denied("dave"), nil, nil},
		"erin, who may do anything there": {"erin", snapshot, "", []token.Grant{{
			Source: token.Object{Kind: "VolumeSnapshot", Namespace: golden, Name: "fedora"}, Target: token.Object{Namespace: team, Name: "v"}}}, nil},
		"bob, with a proof of his own":   {"bob", annotate(cloneOf(golden, "fedora"), "storage.clone.token: abc.def"), denied("bob"), nil, nil},
		"bob, a false proof for nothing": {"bob", annotate(cloneOf(team, "x"), "storage.clone.token: abc.def"), "", nil, []token.Grant{pvcGrant("fedora", "v")}},
	} {
		t.Run(name, func(t *testing.T) {
			u := object(row.object)
			err := users[row.user].Create(t.Context(), u, client.DryRunAll)
			if row.refused != "" {
				if err == nil || !strings.Contains(err.Error(), row.refused) {
					t.Fatalf("got %v, want %s", err, row.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			proof := u.GetAnnotations()[token.Annotation]
			for _, g := range row.proves {
				if err := clones.Verify(t.Context(), proof, g); err != nil {
					t.Errorf("%+v: %v", g, err)
				}
			}
			for _, g := range row.not {
				if err := clones.Verify(t.Context(), proof, g); err == nil {
					t.Errorf("the proof covers %+v too", g)
				}
			}
		})
	}
}

func annotate(text, annotation string) string {
	return strings.Replace(text, "namespace: team}", "namespace: team, annotations: {cdi.kubevirt.io/"+annotation+"}}", 1)
}

// TestGeneratedName: the proof is made before the API server completes the name, and holds for what comes out.
func TestGeneratedName(t *testing.T) {
	u := object(strings.Replace(cloneOf(golden, "fedora"), "name: v,", "generateName: v-,", 1))
	create(t, users["alice"], u)
	proof := u.GetAnnotations()[token.Annotation]
	if err := clones.Verify(t.Context(), proof, pvcGrant("fedora", u.GetName())); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"other", "v-", "v-x7k2p", u.GetName() + "2"} {
		if err := clones.Verify(t.Context(), proof, pvcGrant("fedora", other)); !errors.Is(err, token.ErrOther) {
			t.Errorf("for %s: got %v, want %v", other, err, token.ErrOther)
		}
	}
	second := object(strings.Replace(cloneOf(golden, "fedora"), "name: v,", "generateName: v-,", 1))
	create(t, users["alice"], second)
	if second.GetName() == u.GetName() || !strings.HasPrefix(second.GetName(), "v-") {
		t.Errorf("the second is called %s, the first %s", second.GetName(), u.GetName())
	}
}

// TestProofStays: a volume keeps its proof through updates that drop or replace it, and Bob gains nothing by copying it.
func TestProofStays(t *testing.T) {
	u := object(cloneOf(golden, "fedora"))
	create(t, users["alice"], u)
	proof := u.GetAnnotations()[token.Annotation]
	for name, annotations := range map[string]map[string]string{
		"dropped": nil, "replaced": {token.Annotation: "abc.def"}, "emptied": {token.Annotation: "", "a": "b"},
	} {
		changed := u.DeepCopy()
		changed.SetResourceVersion("")
		changed.SetAnnotations(annotations)
		changed.SetLabels(map[string]string{"test": name})
		latest := &unstructured.Unstructured{}
		latest.SetGroupVersionKind(u.GroupVersionKind())
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), latest); err != nil {
			t.Fatal(err)
		}
		changed.SetResourceVersion(latest.GetResourceVersion())
		if err := users["bob"].Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if got := changed.GetAnnotations()[token.Annotation]; got != proof {
			t.Errorf("%s: the proof is %q, was %q", name, got, proof)
		}
	}
	copied := object(cloneOf(golden, "fedora"))
	copied.SetName("copy")
	copied.SetAnnotations(map[string]string{token.Annotation: proof})
	if err := users["bob"].Create(t.Context(), copied, client.DryRunAll); err == nil {
		t.Error("Bob made a clone with Alice's proof")
	}
	if err := clones.Verify(t.Context(), proof, pvcGrant("fedora", "copy")); !errors.Is(err, token.ErrOther) {
		t.Errorf("Alice's proof on a copy: %v", err)
	}
}

// TestMachineAuthorisation: a machine's volumes are made by the controller, with the controller's rights; what counts are
// those of the user who wrote the machine.
func TestMachineAuthorisation(t *testing.T) {
	machine := func(templates string) *unstructured.Unstructured {
		return object(fmt.Sprintf(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: m, namespace: team}, spec: {
			runStrategy: Halted, template: {spec: {domain: {devices: {}}, volumes: [{name: root, dataVolume: {name: root}},
			{name: data, dataVolume: {name: data}}]}}, dataVolumeTemplates: [%s]}}`, templates))
	}
	const (
		abroad = "{metadata: {name: root}, spec: {source: {pvc: {namespace: golden, name: fedora}}, storage: {}}}"
		atHome = "{metadata: {name: root}, spec: {source: {pvc: {namespace: team, name: fedora}}, storage: {}}}"
		plain  = "{metadata: {name: data}, spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}}"
	)
	for name, row := range map[string]struct {
		user, templates string
		allowed         bool
	}{
		"alice, abroad": {"alice", abroad, true}, "bob, abroad": {"bob", abroad, false}, "bob, at home": {"bob", atHome, true},
		"bob, a blank disk": {"bob", plain, true}, "bob, both": {"bob", plain + "," + abroad, false},
		"carol, the claim she may": {"carol", abroad, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := users[row.user].Create(t.Context(), machine(row.templates), client.DryRunAll)
			want := fmt.Sprintf("User %s has insufficient permissions in clone source namespace golden", row.user)
			switch {
			case row.allowed && err != nil:
				t.Error(err)
			case !row.allowed && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	made := machine(plain)
	create(t, users["bob"], made)
	patch := toJSON(t, "{spec: {dataVolumeTemplates: ["+abroad+"]}}")
	if err := users["bob"].Patch(t.Context(), made.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err == nil {
		t.Error("Bob got at the image by changing a machine")
	}
	if err := users["alice"].Patch(t.Context(), made, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Error(err)
	}
	label := toJSON(t, "{metadata: {labels: {a: b}}}")
	if err := users["bob"].Patch(t.Context(), made, client.RawPatch("application/merge-patch+json", label)); err != nil {
		t.Errorf("Bob may not label a machine whose disk Alice was allowed: %v", err)
	}
}

// TestMachineProofs: what a machine's volumes may be cloned from is settled when its author is admitted. A DataSource that
// is aimed elsewhere before the controller makes the volume leads nowhere, and the proof cannot be replaced or moved.
func TestMachineProofs(t *testing.T) {
	source := object(`{kind: DataSource, metadata: {name: aimed, namespace: golden}, spec: {source: {pvc: {namespace: golden, name: fedora}}}}`)
	create(t, admin, source)
	made := object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: proven, namespace: team,
		annotations: {berth.dev/clone-tokens: '{"root":"abc.def","other":"abc.def"}'}}, spec: {
		runStrategy: Halted, template: {spec: {domain: {devices: {}}, volumes: [{name: root, dataVolume: {name: root}}]}}, dataVolumeTemplates: [
			{metadata: {name: root}, spec: {sourceRef: {kind: DataSource, namespace: golden, name: aimed}, storage: {}}}]}}`)
	create(t, users["carol"], made)
	proofs := token.Proofs(made.GetAnnotations()[token.MachineAnnotation])
	if len(proofs) != 1 {
		t.Errorf("the proofs are %v", proofs)
	}
	if err := clones.Verify(t.Context(), proofs["root"], viaGrant("aimed", "fedora", "root")); err != nil {
		t.Errorf("what Carol was allowed: %v", err)
	}
	// The DataSource lies beside its source and may become newer; but Carol may not clone the newer one.
	if err := clones.Verify(t.Context(), proofs["root"], viaGrant("aimed", "newer", "root")); !errors.Is(err, token.ErrRevoked) {
		t.Errorf("what Carol was not allowed: %v", err)
	}
	for name, g := range map[string]token.Grant{"another source": pvcGrant("debian", "root"), "another volume": pvcGrant("fedora", "other")} {
		if err := clones.Verify(t.Context(), proofs["root"], g); !errors.Is(err, token.ErrOther) {
			t.Errorf("%s: got %v, want %v", name, err, token.ErrOther)
		}
	}
	// A volume that the controller itself makes from a snapshot proves nothing, because another user may have written the snapshot.
	restored := made.DeepCopy()
	restored.SetName("restored")
	restored.SetResourceVersion("")
	create(t, admin, restored)
	if got := token.Proofs(restored.GetAnnotations()[token.MachineAnnotation]); len(got) != 0 {
		t.Errorf("a machine of the controller's own has the proofs %v", got)
	}

	kept := made.GetAnnotations()[token.MachineAnnotation]
	for name, text := range map[string]string{
		"dropped": "{metadata: {annotations: {berth.dev/clone-tokens: null}}}", "replaced": "{metadata: {annotations: {berth.dev/clone-tokens: '{}'}}}",
	} {
		changed := made.DeepCopy()
		if err := users["bob"].Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", toJSON(t, text))); err != nil {
			t.Fatal(err)
		}
		if got := changed.GetAnnotations()[token.MachineAnnotation]; got != kept {
			t.Errorf("%s: the proofs are %q", name, got)
		}
	}
}

// TestRightsAreAskedAgain: a proof is worth nothing once its user may not clone any more, and something again when they may.
func TestRightsAreAskedAgain(t *testing.T) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: golden, Name: "frank"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}}}}
	binding := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: golden, Name: "frank"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "frank"}}}
	}
	create(t, admin, role)
	create(t, admin, binding())
	u := object(cloneOf(golden, "fedora"))
	eventually(t, "Frank makes a clone", func() (bool, error) {
		err := users["frank"].Create(t.Context(), u)
		return err == nil, err
	})
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), u) })
	proof, wanted := u.GetAnnotations()[token.Annotation], pvcGrant("fedora", "v")
	fresh := func() error { // as a controller that has just started
		clients, err := kubernetes.NewForConfig(baseCfg)
		if err != nil {
			return err
		}
		return installkeys.NewClone(admin, nil, home, clients.AuthorizationV1().SubjectAccessReviews()).Verify(t.Context(), proof, wanted)
	}
	if err := fresh(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), binding()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Frank's proof is refused", func() (bool, error) {
		err := fresh()
		return errors.Is(err, token.ErrRevoked), err
	})
}
