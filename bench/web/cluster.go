package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// simulated is an API server that has objects and nothing else: it lists them, and sends a watch what is changed. Every request is allowed.
type simulated struct {
	kinds map[string]*kind // by resource

	mu      sync.Mutex
	version int
}

// kind is a resource with its objects.
type kind struct {
	group, name string // "kubevirt.io/v1", "VirtualMachine"
	objects     []map[string]any
	watches     map[chan map[string]any]bool
}

// change sends an object to all who watch its kind.
func (s *simulated) change(resource string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	for w := range s.kinds[resource].watches {
		w <- map[string]any{"type": "MODIFIED", "object": object}
	}
}

func (s *simulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := words[len(words)-1]
	switch k := s.kinds[last]; {
	case strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusCreated)
		say(w, map[string]any{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]any{"allowed": true}})
	case k != nil && r.URL.Query().Get("sendInitialEvents") != "": // a client that wants its list by a watch takes the list instead
		w.WriteHeader(http.StatusUnprocessableEntity)
		say(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": http.StatusUnprocessableEntity})
	case k != nil && r.URL.Query().Get("watch") != "":
		s.watch(w, r, k)
	case k != nil:
		say(w, map[string]any{"kind": k.name + "List", "apiVersion": k.group, "metadata": map[string]any{"resourceVersion": "1"}, "items": k.objects})
	case strings.HasPrefix(last, "v1"):
		say(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"), "resources": []any{}})
	default:
		w.WriteHeader(http.StatusNotFound)
		say(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound})
	}
}

func say(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) } // the client is gone

func (s *simulated) watch(w http.ResponseWriter, r *http.Request, k *kind) {
	changes := make(chan map[string]any, 64)
	s.mu.Lock()
	k.watches[changes] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(k.watches, changes)
	}()
	_ = http.NewResponseController(w).Flush() // the client waits for the head
	for {
		select {
		case <-r.Context().Done():
			return
		case c := <-changes:
			say(w, c)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func newSimulated(machines, disks int) *simulated {
	s := &simulated{kinds: map[string]*kind{}, version: 2}
	for resource, group := range map[string]string{
		"virtualmachines VirtualMachine": "kubevirt.io/v1", "virtualmachineinstances VirtualMachineInstance": "kubevirt.io/v1",
		"datavolumes DataVolume": "cdi.kubevirt.io/v1beta1", "datasources DataSource": "cdi.kubevirt.io/v1beta1",
		"dataimportcrons DataImportCron": "cdi.kubevirt.io/v1beta1", "storageprofiles StorageProfile": "cdi.kubevirt.io/v1beta1",
		"virtualmachinesnapshots VirtualMachineSnapshot": "snapshot.kubevirt.io/v1beta1", "virtualmachinerestores VirtualMachineRestore": "snapshot.kubevirt.io/v1beta1",
		"persistentvolumeclaims PersistentVolumeClaim": "v1", "persistentvolumes PersistentVolume": "v1", "pods Pod": "v1", "nodes Node": "v1",
		"storageclasses StorageClass": "storage.k8s.io/v1", "csistoragecapacities CSIStorageCapacity": "storage.k8s.io/v1",
	} {
		name, title, _ := strings.Cut(resource, " ")
		s.kinds[name] = &kind{group: group, name: title, watches: map[chan map[string]any]bool{}}
	}
	for n := range nodes {
		s.add("nodes", "", node(n), `{}`, `{"conditions": [{"type": "Ready", "status": "True"}]}`)
	}
	for m := range machines {
		s.machine(m, disks/machines)
	}
	return s
}

// nodes are as many as a cluster of that size has.
const nodes = 20

func node(n int) string { return fmt.Sprintf("node%02d", n%nodes) }

func (s *simulated) add(resource, namespace, name, spec, status string) {
	k := s.kinds[resource]
	meta := map[string]any{
		"name": name, "uid": resource + name, "resourceVersion": "1", "creationTimestamp": time.Now().UTC().Format(time.RFC3339),
		"labels": map[string]any{"app": "bench", "vm.kubevirt.io/name": name}, "annotations": map[string]any{"note": strings.Repeat("what people write ", 20)},
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	k.objects = append(k.objects, map[string]any{"kind": k.name, "apiVersion": k.group, "metadata": meta,
		"spec": json.RawMessage(spec), "status": json.RawMessage(status)})
}

// machine is one that runs, with its disks and its pod.
func (s *simulated) machine(n, disks int) {
	namespace, name := fmt.Sprintf("team%d", n%10), fmt.Sprintf("vm-%04d", n)
	var volumes []string
	for d := range disks {
		claim := fmt.Sprintf("%s-disk%d", name, d)
		volumes = append(volumes, fmt.Sprintf(`{"name": "disk%d", "dataVolume": {"name": %q}}`, d, claim))
		s.add("datavolumes", namespace, claim, `{"source": {"http": {"url": "https://example.org/image.qcow2"}}, "storage": {"resources": {"requests": {"storage": "10Gi"}}}}`,
			`{"phase": "Succeeded", "progress": "100.0%", "claimName": "`+claim+`", "conditions": [{"type": "Ready", "status": "True", "message": "done"}, {"type": "Bound", "status": "True", "message": "PVC bound"}, {"type": "Running", "status": "False", "reason": "Completed", "message": "Import Complete"}]}`)
		s.add("persistentvolumeclaims", namespace, claim, `{"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeName": "pv-`+claim+`", "resources": {"requests": {"storage": "10Gi"}}}`,
			`{"phase": "Bound", "capacity": {"storage": "10Gi"}}`)
		s.add("persistentvolumes", "", "pv-"+claim, `{"capacity": {"storage": "10Gi"}, "storageClassName": "local", "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["`+node(n)+`"]}]}]}}}`, `{"phase": "Bound"}`)
	}
	spec := `{"domain": {"devices": {"disks": []}}, "volumes": [` + strings.Join(volumes, ", ") + `]}`
	s.add("virtualmachines", namespace, name, `{"runStrategy": "Always", "template": {"spec": `+spec+`}}`,
		`{"printableStatus": "Running", "ready": true, "created": true, "conditions": [{"type": "Ready", "status": "True", "message": "its guest runs: pod virt-launcher-`+name+` on node `+node(n)+`"}]}`)
	s.add("virtualmachineinstances", namespace, name, spec, `{"phase": "Running", "nodeName": "`+node(n)+`"}`)
	s.add("pods", namespace, "virt-launcher-"+name, `{"nodeName": "`+node(n)+`", "containers": [{"name": "compute", "image": "berth.dev/berth-launcher:dev"}]}`, `{"phase": "Running"}`)
}
