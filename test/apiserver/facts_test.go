//go:build apiserver

package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// facts are the keys that our controllers trust on pods, by the field of a pod's metadata: only Berth writes them.
var facts = map[string][]string{
	"annotations": {render.AnnMachine, render.AnnGo, render.AnnDisks, render.AnnAgent, render.AnnMove, render.AnnFrom, render.AnnTask,
		render.AnnAttempt, names.Serves, render.AnnExportCA, render.AnnExportManifests, render.AnnMoment},
	"labels":     {render.LabelClaimUID, render.LabelInstance, render.LabelVolume, render.LabelMaker},
	"finalizers": {render.LauncherEnd, render.WorkerEnd},
}

// podWith returns a pod with one key in a field of its metadata.
func podWith(name, field, key string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
	switch field {
	case "annotations":
		p.Annotations = map[string]string{key: "forged"}
	case "labels":
		p.Labels = map[string]string{key: "forged"}
	case "finalizers":
		p.Finalizers = []string{key}
	}
	return p
}

// patchOf writes the same key onto a pod that is there; value nil removes it.
func patchOf(t *testing.T, field, key string, value any) client.Patch {
	t.Helper()
	content := map[string]any{key: value}
	body := map[string]any{"metadata": map[string]any{field: content}}
	if field == "finalizers" {
		list := []string{}
		if value != nil {
			list = []string{key}
		}
		body = map[string]any{"metadata": map[string]any{field: list}}
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, text)
}

// clientOf returns the client of a user with a role in namespace team, or with that role everywhere.
func clientOf(t *testing.T, name, role string, everywhere bool) client.Client {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	if everywhere {
		create(t, admin, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects})
	} else {
		create(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, RoleRef: ref, Subjects: subjects})
	}
	config := rest.CopyConfig(baseCfg)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPodFacts: the keys that our controllers trust on pods are written by Berth alone. A user who may create pods cannot make one
// with such a key, nor have a controller of Kubernetes make it, nor change the key on a pod of ours; users may change everything
// else. Administrators are not bound.
func TestPodFacts(t *testing.T) {
	installRights(t)
	tenant := clientOf(t, "tenant-of-facts", "system:aggregate-to-edit", false) // the rules of edit: nobody aggregates them here
	operator := clientOf(t, "operator-of-facts", "cluster-admin", true)
	ours, err := client.New(as("berth:berth-controller"), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	builtin, err := client.New(as("kube-system:replicaset-controller"), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy of pods holds", func() (bool, error) {
		err := tenant.Create(t.Context(), podWith("facts-try", "annotations", render.AnnMachine), client.DryRunAll)
		return forbidsFacts(err), nil
	})
	for _, field := range slices.Sorted(maps.Keys(facts)) {
		for n, key := range facts[field] {
			t.Run(key, func(t *testing.T) {
				keyIsOurs(t, field, key, fmt.Sprintf("facts-%s-%d", field, n), tenant, builtin, ours, operator)
			})
		}
	}
	plain := podWith("facts-plain", "labels", "app")
	create(t, tenant, plain)
	for key, value := range map[string]any{"app": "mine", render.AnnEvacuate: "now"} {
		if err := tenant.Patch(t.Context(), plain, patchOf(t, "annotations", key, value)); err != nil {
			t.Errorf("a tenant may not write %s on a pod of theirs: %v", key, err)
		}
	}
}

func keyIsOurs(t *testing.T, field, key, name string, tenant, builtin, ours, operator client.Client) {
	for who, c := range map[string]client.Client{"a tenant": tenant, "a ReplicaSet": builtin} {
		if err := c.Create(t.Context(), podWith(name, field, key)); !forbidsFacts(err) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s makes a pod with it: %v", who, err)
		}
	}
	bare := podWith(name+"-bare", "", "")
	create(t, tenant, bare)
	if err := tenant.Patch(t.Context(), bare, patchOf(t, field, key, "forged")); !forbidsFacts(err) {
		t.Errorf("a tenant writes it on a pod: %v", err)
	}
	for who, c := range map[string]client.Client{"our controller": ours, "an administrator": operator, "a member of system:masters": admin} {
		p := podWith(name+"-"+strings.ToLower(strings.ReplaceAll(who[strings.LastIndex(who, " ")+1:], ":", "-")), field, key)
		if err := c.Create(t.Context(), p); err != nil {
			t.Errorf("%s makes no pod with it: %v", who, err)
			continue
		}
		if err := tenant.Patch(t.Context(), p.DeepCopy(), patchOf(t, "annotations", "theirs", "too")); err != nil {
			t.Errorf("a tenant may not write something else beside it: %v", err)
		}
		if field == "finalizers" {
			if err := tenant.Patch(t.Context(), p.DeepCopy(), patchOf(t, field, key, nil)); err != nil {
				t.Errorf("a tenant may not remove the finalizer: %v", err)
			}
			continue
		}
		for what, value := range map[string]any{"changes": "other", "removes": nil} {
			if err := tenant.Patch(t.Context(), p.DeepCopy(), patchOf(t, field, key, value)); !forbidsFacts(err) {
				t.Errorf("a tenant %s it: %v", what, err)
			}
		}
		if err := c.Patch(t.Context(), p.DeepCopy(), patchOf(t, field, key, "other")); err != nil {
			t.Errorf("%s does not change it: %v", who, err)
		}
	}
}

func forbidsFacts(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "only Berth writes")
}
