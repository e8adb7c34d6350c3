package uninstall

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// inventory has a line for each object that an installation consists of: its kind and group, its namespace and its name. It lists
// the objects of the manifests:
//
//go:generate go test -run ^TestInventory$ . -update
//go:embed inventory.txt
var inventory string

var installed = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(inventory) {
		all[strings.TrimSpace(line)] = true
	}
	return all
})

// key returns an object's line in the inventory.
func key(kind, group, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSuffix(kind+"."+group, ".") + " " + name
}

// isInstalled reports whether the object is one that an installation of Berth has. Any user can label their own objects; they
// cannot make a namespace or a cluster-wide object, nor an object in Berth's namespaces.
func (o object) isInstalled() bool {
	return o.GetLabels()[Installed] == "true" && installed()[key(o.GetKind(), o.resource.Group, o.GetNamespace(), o.GetName())]
}

// sort parts what was found with the label into what was installed and what only has the label. What Kubernetes made for an installed object, with the
// labels of that object, is neither: it goes with its owner.
func sort(found []object) (ours, strays []object) {
	for _, o := range found {
		if o.isInstalled() {
			ours = append(ours, o)
		}
	}
	for _, o := range found {
		if !o.isInstalled() && !o.ownedByOneOf(ours) {
			strays = append(strays, o)
		}
	}
	return ours, strays
}

func (o object) ownedByOneOf(owners []object) bool {
	for _, ref := range o.GetOwnerReferences() {
		if slices.ContainsFunc(owners, func(owner object) bool { return owner.GetUID() == ref.UID && owner.GetNamespace() == o.GetNamespace() }) {
			return true
		}
	}
	return false
}
