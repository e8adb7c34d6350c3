package aggregated

import (
	discovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Group is an API group as discovery shows it.
type Group struct {
	Name      string
	Versions  []string // the preferred one first
	Resources []metav1.APIResource
}

// The API groups that this server answers.
var (
	Upload = Group{Name: "upload.cdi.kubevirt.io", Versions: []string{"v1beta1"}, Resources: []metav1.APIResource{
		{Name: "uploadtokenrequests", SingularName: "uploadtokenrequest", Namespaced: true, Kind: "UploadTokenRequest",
			ShortNames: []string{"utr", "utrs"}, Verbs: metav1.Verbs{"create"}},
	}}
	Subresources = Group{Name: "subresources.kubevirt.io", Versions: []string{"v1", "v1alpha3"}, Resources: []metav1.APIResource{
		put("virtualmachines/start"), put("virtualmachines/stop"), put("virtualmachines/restart"),
		put("virtualmachines/addvolume"), put("virtualmachines/removevolume"), put("virtualmachines/migrate"),
		put("virtualmachineinstances/addvolume"), put("virtualmachineinstances/removevolume"),
		put("virtualmachineinstances/keep"),
		put("virtualmachineinstances/pause"), put("virtualmachineinstances/unpause"),
		put("virtualmachines/memorydump"), put("virtualmachines/removememorydump"),
		put("virtualmachineinstances/freeze"), put("virtualmachineinstances/unfreeze"),
		put("virtualmachineinstances/reset"), put("virtualmachineinstances/softreboot"),
		put("virtualmachines/evacuate/cancel"), put("virtualmachineinstances/evacuate/cancel"), put("expand-vm-spec"),
		get("virtualmachines/expand-spec"), get("virtualmachines/objectgraph"), get("virtualmachineinstances/objectgraph"),
		get("virtualmachineinstances/console"), get("virtualmachineinstances/vnc"), get("virtualmachineinstances/vnc/screenshot"),
		get("virtualmachineinstances/portforward"), get("virtualmachines/portforward"),
		get("virtualmachineinstances/guestosinfo"), get("virtualmachineinstances/filesystemlist"), get("virtualmachineinstances/userlist"),
		{Name: "version", Kind: "Version", Verbs: metav1.Verbs{"get", "list"}},
	}}
	Groups = []Group{Upload, Subresources}
)

func put(name string) metav1.APIResource {
	return metav1.APIResource{Name: name, Namespaced: true, Kind: "VirtualMachine", Verbs: metav1.Verbs{"update"}}
}

func get(name string) metav1.APIResource {
	return metav1.APIResource{Name: name, Namespaced: true, Kind: "VirtualMachineInstance", Verbs: metav1.Verbs{"get"}}
}

// Document returns the group as discovery shows it.
func (g Group) Document() metav1.APIGroup {
	doc := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.Name}
	for _, v := range g.Versions {
		doc.Versions = append(doc.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + v, Version: v})
	}
	doc.PreferredVersion = doc.Versions[0]
	return doc
}

func (g Group) resources(v string) metav1.APIResourceList {
	return metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: g.Name + "/" + v, APIResources: g.Resources,
	}
}

// Aggregated returns the group's version in the form in which all groups are shown at once. Subresources of kinds that are
// another group's cannot be shown there.
func (g Group) Aggregated(v string) discovery.APIVersionDiscovery {
	out := discovery.APIVersionDiscovery{Version: v, Freshness: discovery.DiscoveryFreshnessCurrent}
	if g.Name != Upload.Name {
		return out
	}
	for _, r := range g.Resources {
		out.Resources = append(out.Resources, discovery.APIResourceDiscovery{
			Resource: r.Name, SingularResource: r.SingularName, Scope: discovery.ScopeNamespace, Verbs: r.Verbs,
			ShortNames: r.ShortNames, ResponseKind: &metav1.GroupVersionKind{Group: g.Name, Version: v, Kind: r.Kind},
		})
	}
	return out
}
