package uninstall

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/berth-vm/berth/internal/testing/golden"
)

// manifests are the directories and files that config/default and the chart are made of.
var manifests = []string{"crd", "rbac", "controller", "node", "api", "uploadproxy", "webhook", "network/policies.yaml"}

// TestInventory: the inventory has what the manifests have.
func TestInventory(t *testing.T) {
	var lines []string
	for _, dir := range manifests {
		root := filepath.Join("..", "..", "..", "config", dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || d.Name() == "kustomization.yaml" {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			decoder := yaml.NewYAMLOrJSONDecoder(f, 4096)
			for {
				u := &unstructured.Unstructured{}
				if decoder.Decode(u) != nil {
					return nil
				}
				if u.GetKind() != "" {
					lines = append(lines, key(u.GetKind(), u.GroupVersionKind().Group, u.GetNamespace(), u.GetName()))
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(lines)
	golden.Equal(t, "inventory.txt", strings.Join(slices.Compact(lines), "\n")+"\n")
	if len(lines) < 50 || !slices.Contains(lines, "Deployment.apps berth/berth-controller") || !slices.Contains(lines, "Namespace berth") {
		t.Errorf("the manifests were not read: %q", lines)
	}
}

// TestOnlyInstalled: an object that has the label and is not in the inventory is not Berth's, nor is one of an installed one's name elsewhere, or without
// the label.
func TestOnlyInstalled(t *testing.T) {
	made := func(kind, group, namespace, name, uid string, owners ...string) object {
		o := object{resource: schema.GroupVersionResource{Group: group}}
		o.SetUnstructuredContent(map[string]any{})
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetUID(types.UID(uid))
		o.SetLabels(map[string]string{Installed: "true"})
		var refs []metav1.OwnerReference
		for _, of := range owners {
			refs = append(refs, metav1.OwnerReference{UID: types.UID(of)})
		}
		o.SetOwnerReferences(refs)
		return o
	}
	plain := made("Namespace", "", "", "berth-node", "9")
	plain.SetLabels(nil)
	ours, strays := sort([]object{
		made("Deployment", "apps", "berth", "berth-controller", "1"),
		made("Service", "", "berth", "cdi-uploadproxy", "2"),
		made("EndpointSlice", "discovery.k8s.io", "berth", "cdi-uploadproxy-x", "3", "2"),
		made("Deployment", "apps", "team", "berth-controller", "4"),
		made("Deployment", "example.org", "berth", "berth-controller", "5"),
		made("PersistentVolumeClaim", "", "team", "disk", "6"),
		made("PersistentVolumeClaim", "", "team", "forged", "7", "1"),
		made("Namespace", "", "", "team", "8"),
		plain,
	})
	uids := func(all []object) (out []types.UID) {
		for _, o := range all {
			out = append(out, o.GetUID())
		}
		return out
	}
	if got := uids(ours); !slices.Equal(got, []types.UID{"1", "2"}) {
		t.Errorf("%v are taken for Berth's", got)
	}
	if got := uids(strays); !slices.Equal(got, []types.UID{"4", "5", "6", "7", "8", "9"}) {
		t.Errorf("%v are said to be left", got)
	}
}
