//go:build apiserver

package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/launcherexec"
	goldenfile "github.com/berth-vm/berth/internal/testing/golden"
)

// accounts are all that are made by our manifests, as the API server calls them.
var accounts = []string{"berth:berth-controller", "berth:berth-api", "berth:cdi-uploadproxy", "berth-node:berth-node", "localdisk:localdisk",
	"localdisk:localdisk-snapshot-metadata"}

// installRights makes the accounts, roles and policies of every manifest there is, says which accounts those are, and comes
// back when the policies hold.
func installRights(t *testing.T) []string {
	t.Helper()
	made, err := rightsOnce()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy of exec holds", func() (bool, error) {
		err := execAs(t, "berth:berth-controller", "POST", "virt-launcher-vm-12345", &corev1.PodExecOptions{Command: []string{"/bin/sh"}})
		return err != nil && strings.Contains(err.Error(), "accounts of Berth"), err
	})
	controller, err := client.New(as("berth:berth-controller"), client.Options{Scheme: clientgo.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy of secrets holds", func() (bool, error) { // each policy is taken up on its own
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, GenerateName: "try-"}}
		err := controller.Create(t.Context(), s)
		if err == nil {
			err = admin.Delete(t.Context(), s)
			return false, err
		}
		return strings.Contains(err.Error(), "accounts of Berth"), err
	})
	return made
}

var rightsOnce = sync.OnceValues(func() (made []string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	for _, name := range []string{"berth-node", "localdisk"} {
		if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	err = fs.WalkDir(os.DirFS(root), "config", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096)
		for {
			u := &unstructured.Unstructured{}
			if decoder.Decode(u) != nil {
				return nil
			}
			group := u.GroupVersionKind().Group
			switch {
			case u.GetKind() == "ServiceAccount":
				made = append(made, u.GetNamespace()+":"+u.GetName())
			case group != rbacv1.GroupName && !strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy"):
				continue
			}
			if err := admin.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	})
	return made, err
})

// execAs asks for a program in a pod, and gives what the API server answers.
func execAs(t *testing.T, account, verb, pod string, options *corev1.PodExecOptions) error {
	t.Helper()
	clients, err := kubernetes.NewForConfig(as(account))
	if err != nil {
		t.Fatal(err)
	}
	return clients.CoreV1().RESTClient().Verb(verb).Resource("pods").Namespace(team).Name(pod).SubResource("exec").
		VersionedParams(options, clientgo.ParameterCodec).Do(t.Context()).Error()
}

func as(account string) *rest.Config {
	config := rest.CopyConfig(baseCfg)
	namespace, _, _ := strings.Cut(account, ":")
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	return config
}

// TestRights asks the API server what each of our accounts may do: at home, where it is installed, and elsewhere. The list is
// held as it is; a right more or less is a change of that file.
func TestRights(t *testing.T) {
	made := installRights(t)
	slices.Sort(made)
	want := slices.Sorted(slices.Values(accounts))
	if made = slices.Compact(made); !slices.Equal(made, want) {
		t.Errorf("accounts are %v, and %v are known here", made, want)
	}
	var list strings.Builder
	for _, account := range accounts {
		namespaces := []string{account[:strings.Index(account, ":")], team}
		if account == "berth-node:berth-node" {
			namespaces = append(namespaces, metav1.NamespaceDefault) // where events of nodes are
		}
		for _, namespace := range namespaces {
			fmt.Fprintf(&list, "%s in namespace %s\n", account, namespace)
			for _, line := range rulesOf(t, account, namespace) {
				fmt.Fprintf(&list, "  %s\n", line)
			}
		}
	}
	goldenfile.Equal(t, filepath.Join("testdata", "rights.txt"), list.String())
}

// rulesOf returns what the API server says an account may do in a namespace, a line for each resource.
func rulesOf(t *testing.T, account, namespace string) []string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(as(account))
	if err != nil {
		t.Fatal(err)
	}
	review, err := clients.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if review.Status.Incomplete {
		t.Fatalf("the rules of %s are not all: %s", account, review.Status.EvaluationError)
	}
	verbs := map[string]map[string]bool{}
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name := strings.TrimSuffix(resource+"."+group, ".")
				if len(rule.ResourceNames) > 0 {
					name += " " + strings.Join(rule.ResourceNames, ",")
				}
				if verbs[name] == nil {
					verbs[name] = map[string]bool{}
				}
				for _, verb := range rule.Verbs {
					verbs[name][verb] = true
				}
			}
		}
	}
	var lines []string
	for name, may := range verbs {
		var all []string
		for verb := range may {
			all = append(all, verb)
		}
		sort.Strings(all)
		lines = append(lines, name+": "+strings.Join(all, " "))
	}
	sort.Strings(lines)
	return lines
}

// TestSecretsOfOthers: no account of ours can read, change or delete a Secret that it did not make, by any verb.
func TestSecretsOfOthers(t *testing.T) {
	installRights(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "theirs"}, Data: map[string][]byte{"password": []byte("x")}}
	create(t, admin, theirs.DeepCopy())
	create(t, admin, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "cdi-keys", Labels: map[string]string{"app": "containerized-data-importer"}},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": nil, "tls.key": nil}})
	ours := map[string]string{"app": "containerized-data-importer", "app.kubernetes.io/part-of": "berth"}
	const clones = "0a1b2c3d-0000-4000-8000-0123456789ab-source-tls" // of a server that has no owner in its namespace
	keys := func(name string, labels map[string]string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: labels}, Type: kind,
			Data: map[string][]byte{"tls.crt": nil, "tls.key": nil}}
	}
	for _, account := range accounts {
		t.Run(account, func(t *testing.T) {
			c, err := client.New(as(account), client.Options{Scheme: clientgo.Scheme})
			if err != nil {
				t.Fatal(err)
			}
			merge := client.RawPatch(types.MergePatchType, []byte(`{}`))
			for what, do := range map[string]func() error{
				"get":    func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(theirs), &corev1.Secret{}) },
				"list":   func() error { return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(team)) },
				"update": func() error { return c.Update(t.Context(), theirs.DeepCopy()) },
				"patch":  func() error { return c.Patch(t.Context(), theirs.DeepCopy(), merge) },
				"label": func() error {
					return c.Patch(t.Context(), theirs.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"containerized-data-importer"}}}`)))
				},
				"delete": func() error { return c.Delete(t.Context(), theirs.DeepCopy()) },
				"delete all": func() error {
					return c.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(team))
				},
				"a token":            func() error { return c.Create(t.Context(), keys("a", ours, corev1.SecretTypeServiceAccountToken)) },
				"no label":           func() error { return c.Create(t.Context(), keys(clones, nil, corev1.SecretTypeTLS)) },
				"no owner":           func() error { return c.Create(t.Context(), keys("b", ours, corev1.SecretTypeTLS)) },
				"delete keys of CDI": func() error { return c.Delete(t.Context(), keys("cdi-keys", nil, corev1.SecretTypeTLS)) },
			} {
				if err := do(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
					t.Errorf("%s: got %v", what, err)
				}
			}
			may := account == "berth:berth-controller"
			if err := c.Create(t.Context(), keys(clones, ours, corev1.SecretTypeTLS)); (err == nil) != may {
				t.Errorf("keys of a transfer: %v", err)
			}
			if err := c.Delete(t.Context(), keys(clones, ours, corev1.SecretTypeTLS)); (err == nil) != may {
				t.Errorf("keys of a transfer are deleted: %v", err)
			}
			owned := keys("owned", ours, corev1.SecretTypeTLS)
			owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "dv", UID: "u", Controller: new(true)}}
			if err := c.Create(t.Context(), owned.DeepCopy()); (err == nil) != may {
				t.Errorf("keys of an upload: %v", err)
			}
			if err := c.Delete(t.Context(), owned.DeepCopy()); (err == nil) != may {
				t.Errorf("keys of an upload are deleted: %v", err)
			}
			login := func(kind string) *corev1.Secret {
				s := keys("login", nil, "berth.dev/disk-login")
				s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: kind, Name: "vm", UID: "u", Controller: new(true)}}
				return s
			}
			if err := c.Create(t.Context(), login("VirtualMachineInstance")); (err == nil) != may {
				t.Errorf("the login of a disk: %v", err)
			}
			if err := c.Delete(t.Context(), login("VirtualMachineInstance")); (err == nil) != may {
				t.Errorf("the login of a disk is deleted: %v", err)
			}
			if err := c.Create(t.Context(), login("ConfigMap")); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("a login that is no machine's: %v", err)
			}
		})
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), &corev1.Secret{}); err != nil {
		t.Errorf("the secret of somebody else: %v", err)
	}
}

// TestVolumeFields: the controller gives volumes to claims, keeps them, and writes words of its own on them; nothing else of a volume changes by it.
func TestVolumeFields(t *testing.T) {
	installRights(t)
	controller, err := client.New(as("berth:berth-controller"), client.Options{Scheme: clientgo.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	volume := func(name string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.org/a": "1"}, Labels: map[string]string{"example.org/l": "1"},
			Finalizers: []string{"example.org/keep"}}}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.PersistentVolumeReclaimPolicy, v.Spec.StorageClassName = corev1.PersistentVolumeReclaimDelete, "none"
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: team, Name: "prime", UID: "1"}
		create(t, admin, v)
		t.Cleanup(func() {
			_ = admin.Patch(context.Background(), v, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
		return v
	}
	patch := func(v *corev1.PersistentVolume, text string) error {
		return controller.Patch(t.Context(), v.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	v := volume("fields")
	eventually(t, "the policy of volumes holds", func() (bool, error) {
		err := patch(v, `{"metadata":{"annotations":{"example.org/try":"1"}}}`)
		if err == nil {
			return false, admin.Patch(t.Context(), v, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.org/try":null}}}`)))
		}
		return strings.Contains(err.Error(), "accounts of Berth"), err
	})
	for what, text := range map[string]string{
		"its class": `{"spec":{"storageClassName":"other"}}`, "its size": `{"spec":{"capacity":{"storage":"2Gi"}}}`, "how it is mounted": `{"spec":{"mountOptions":["suid"]}}`,
		"who may use it": `{"spec":{"accessModes":["ReadWriteMany"]}}`, "where it is": `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}}`,
		"an annotation": `{"metadata":{"annotations":{"example.org/a":"2"}}}`, "an annotation that goes": `{"metadata":{"annotations":{"example.org/a":null}}}`,
		"a label": `{"metadata":{"labels":{"example.org/l":"2"}}}`, "a finalizer that goes": `{"metadata":{"finalizers":[]}}`,
		"another's finalizer": `{"metadata":{"finalizers":["example.org/keep","example.org/more"]}}`,
		"an owner":            `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
	} {
		if err := patch(v, text); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for what, text := range map[string]string{
		"a word of ours": `{"metadata":{"annotations":{"berth.dev/filled-for":"1"},"labels":{"berth.dev/replaces":"x"}}}`, "that it is kept": `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`,
		"its claim": `{"spec":{"claimRef":{"name":"target","uid":"2"}}}`,
	} {
		if err := patch(v, text); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	var now corev1.PersistentVolume
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(v), &now); err != nil || err == nil && controller.Update(t.Context(), &now) == nil {
		t.Errorf("the controller replaces a whole volume: %v", err)
	}
}

// TestExec: an account of ours runs in a launcher what is its own, and nothing anywhere else. The pods do not exist: who gets
// as far as to be told so was let through.
func TestExec(t *testing.T) {
	installRights(t)
	launcher := func(verb string) []string { return []string{launcherexec.Program, verb} }
	for name, row := range map[string]struct {
		account, pod, container string
		command                 []string
		may                     bool
	}{
		"freeze":               {"berth:berth-controller", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Freeze), true},
		"thaw":                 {"berth:berth-controller", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Thaw), true},
		"console":              {"berth:berth-api", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Console), true},
		"another's verb":       {"berth:berth-api", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Freeze), false},
		"the other's verb":     {"berth:berth-controller", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Console), false},
		"a shell":              {"berth:berth-controller", "virt-launcher-vm-12345", launcherexec.Container, []string{"/bin/sh"}, false},
		"a shell by a verb":    {"berth:berth-controller", "virt-launcher-vm-12345", launcherexec.Container, []string{"/bin/sh", "freeze"}, false},
		"more than a verb":     {"berth:berth-api", "virt-launcher-vm-12345", launcherexec.Container, append(launcher(launcherexec.Console), "x"), false},
		"nothing":              {"berth:berth-api", "virt-launcher-vm-12345", launcherexec.Container, nil, false},
		"another container":    {"berth:berth-api", "virt-launcher-vm-12345", "sidecar", launcher(launcherexec.Console), false},
		"the default one":      {"berth:berth-api", "virt-launcher-vm-12345", "", launcher(launcherexec.Console), false},
		"another pod":          {"berth:berth-controller", "database-0", launcherexec.Container, launcher(launcherexec.Freeze), false},
		"the upload proxy":     {"berth:cdi-uploadproxy", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Console), false},
		"the node agent":       {"berth-node:berth-node", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Console), false},
		"the storage driver":   {"localdisk:localdisk", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Console), false},
		"freeze, of the proxy": {"berth:cdi-uploadproxy", "virt-launcher-vm-12345", launcherexec.Container, launcher(launcherexec.Freeze), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"GET", "POST"} {
				err := execAs(t, row.account, verb, row.pod, &corev1.PodExecOptions{Container: row.container, Command: row.command, Stdout: true})
				if row.may && !apierrors.IsNotFound(err) || !row.may && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
					t.Errorf("%s: got %v", verb, err)
				}
			}
		})
	}
	for _, account := range accounts {
		for _, sub := range []string{"attach", "portforward", "proxy"} {
			clients, err := kubernetes.NewForConfig(as(account))
			if err != nil {
				t.Fatal(err)
			}
			err = clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(team).Name("virt-launcher-vm-12345").SubResource(sub).Do(t.Context()).Error()
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s by %s: %v", sub, account, err)
			}
		}
	}
}

// TestUsersRoles: the roles of users have the kinds of CDI that upstream gives them. Viewers may not clone, unlike there: they could read what is on a disk.
func TestUsersRoles(t *testing.T) {
	installRights(t)
	own := []string{"datavolumes", "dataimportcrons", "datasources", "volumeimportsources", "volumeuploadsources", "volumeclonesources"}
	shown := append(slices.Clone(own), "cdiconfigs", "storageprofiles", "objecttransfers")
	may := func(c client.Client, verb, resource, subresource string) bool {
		t.Helper()
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "cdi.kubevirt.io", Resource: resource, Subresource: subresource, Verb: verb,
		}}}
		must(t, c.Create(t.Context(), review))
		return review.Status.Allowed
	}
	for role, writes := range map[string]bool{"admin": true, "edit": true, "view": false} {
		c := clientOf(t, "user-of-"+role, "cdi.kubevirt.io:"+role, true)
		for _, resource := range shown {
			if wants := slices.Contains(own, resource) || !writes; wants && !may(c, "watch", resource, "") {
				t.Errorf("%s may not watch %s", role, resource)
			}
		}
		for _, resource := range own {
			if is := may(c, "create", resource, ""); is != writes {
				t.Errorf("%s may create %s: %v", role, resource, is)
			}
		}
		if is := may(c, "create", "datavolumes", "source"); is != writes {
			t.Errorf("%s may clone: %v", role, is)
		}
	}
}
