//go:build e2e

package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// ask403 is a request that only the victim, or an administrator, may make.
type ask403 struct{ verb, path, body string }

// requests are those that the API server itself has to refuse. They test the roles that Berth installs: a right that edit got by
// mistake, or a subresource without a check, is found here.
func (h *hostile) requests() attempts {
	const (
		core, volumes, machines = "/api/v1", "/apis/cdi.kubevirt.io/v1beta1", "/apis/kubevirt.io/v1"
		sub, snapshots          = "/apis/subresources.kubevirt.io/v1", "/apis/snapshot.kubevirt.io/v1beta1"
		touch                   = `{"metadata":{"annotations":{"touched":"yes"}}}`
	)
	in := "/namespaces/" + h.victim.Namespace
	token := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`
	backups := "/apis/backup.kubevirt.io/v1alpha1"
	rows := map[string]ask403{
		"back a machine up":               {"POST", backups + in + "/virtualmachinebackups", `{}`},
		"track a machine":                 {"POST", backups + in + "/virtualmachinebackuptrackers", `{}`},
		"see backups":                     {"GET", backups + in + "/virtualmachinebackups", ""},
		"back a machine of theirs up":     {"POST", backups + "/namespaces/" + h.own.Namespace + "/virtualmachinebackups", `{}`},
		"write a backup's status":         {"PATCH", backups + "/namespaces/" + h.own.Namespace + "/virtualmachinebackups/any/status", `{"status":{"type":"Full"}}`},
		"have a machine backed up":        {"POST", "/apis/berth.dev/v1alpha1" + in + "/machineschedules", `{}`},
		"have one of theirs backed up":    {"POST", "/apis/berth.dev/v1alpha1/namespaces/" + h.own.Namespace + "/machineschedules", `{}`},
		"see schedules":                   {"GET", "/apis/berth.dev/v1alpha1" + in + "/machineschedules", ""},
		"write a schedule's status":       {"PATCH", "/apis/berth.dev/v1alpha1/namespaces/" + h.own.Namespace + "/machineschedules/any/status", `{"status":{"machines":[]}}`},
		"read a claim":                    {"GET", core + in + "/persistentvolumeclaims/golden", ""},
		"change a claim":                  {"PATCH", core + in + "/persistentvolumeclaims/golden", touch},
		"delete a claim":                  {"DELETE", core + in + "/persistentvolumeclaims/golden", ""},
		"change a volume":                 {"PATCH", core + "/persistentvolumes/" + h.volume.Name, touch},
		"label their namespace":           {"PATCH", core + "/namespaces/" + h.own.Namespace, `{"metadata":{"labels":{"images.berth.dev/any":"allowed"}}}`},
		"make a library of a namespace":   {"PATCH", core + in, `{"metadata":{"labels":{"berth.dev/image-library":"true"}}}`},
		"read keys of uploads and clones": {"GET", core + in + "/secrets", ""},
		"run a pod":                       {"POST", core + in + "/pods", `{}`},
		"run in a launcher":               {"POST", core + in + "/pods/any/exec?command=sh", ""},
		"read a DataVolume":               {"GET", volumes + in + "/datavolumes/golden", ""},
		"change a DataVolume":             {"PATCH", volumes + in + "/datavolumes/golden", touch},
		"write a DataVolume's status":     {"PATCH", volumes + in + "/datavolumes/golden/status", `{"status":{"phase":"Failed"}}`},
		"delete a DataVolume":             {"DELETE", volumes + in + "/datavolumes/golden", ""},
		"make a DataSource":               {"POST", volumes + in + "/datasources", `{}`},
		"permit themselves":               {"POST", "/apis/gateway.networking.k8s.io/v1beta1" + in + "/referencegrants", `{}`},
		"give themselves a role":          {"POST", "/apis/rbac.authorization.k8s.io/v1" + in + "/rolebindings", `{}`},
		"ask for an upload token":         {"POST", "/apis/upload.cdi.kubevirt.io/v1beta1" + in + "/uploadtokenrequests", `{"spec":{"pvcName":"golden"}}`},
		"change a machine":                {"PATCH", machines + in + "/virtualmachines/machine", touch},
		"write a machine's status":        {"PATCH", machines + in + "/virtualmachines/machine/status", `{"status":{"printableStatus":"Stopped"}}`},
		"delete a machine":                {"DELETE", machines + in + "/virtualmachines/machine", ""},
		"delete an instance":              {"DELETE", machines + in + "/virtualmachineinstances/machine", ""},
		"write an instance's status":      {"PATCH", machines + in + "/virtualmachineinstances/machine/status", `{"status":{"phase":"Failed"}}`},
		"start a machine":                 {"PUT", sub + in + "/virtualmachines/machine/start", `{}`},
		"stop a machine":                  {"PUT", sub + in + "/virtualmachines/machine/stop", `{}`},
		"restart a machine":               {"PUT", sub + in + "/virtualmachines/machine/restart", `{}`},
		"add a volume":                    {"PUT", sub + in + "/virtualmachines/machine/addvolume", `{}`},
		"add a volume to an instance":     {"PUT", sub + in + "/virtualmachineinstances/machine/addvolume", `{}`},
		"keep a disk":                     {"PUT", sub + in + "/virtualmachineinstances/machine/keep", `{"name":"machine-0","claimName":"golden"}`},
		"remove a volume":                 {"PUT", sub + in + "/virtualmachines/machine/removevolume", `{}`},
		"open a console":                  {"GET", sub + in + "/virtualmachineinstances/machine/console", ""},
		"freeze a guest":                  {"PUT", sub + in + "/virtualmachineinstances/machine/freeze", `{}`},
		"reset a guest":                   {"PUT", sub + in + "/virtualmachineinstances/machine/reset", `{}`},
		"reboot a guest":                  {"PUT", sub + in + "/virtualmachineinstances/machine/softreboot", `{}`},
		"see what a machine has":          {"GET", sub + in + "/virtualmachines/machine/objectgraph", ""},
		"see the whole of a machine":      {"GET", sub + in + "/virtualmachines/machine/expand-spec", ""},
		"expand one there":                {"PUT", sub + in + "/expand-vm-spec", `{}`},
		"clone a machine there":           {"POST", "/apis/clone.kubevirt.io/v1beta1" + in + "/virtualmachineclones", `{}`},
		"move a machine":                  {"PUT", sub + in + "/virtualmachines/machine/migrate", `{}`},
		"make a migration":                {"POST", machines + in + "/virtualmachineinstancemigrations", `{"spec":{"vmiName":"machine"}}`},
		"cancel migrations":               {"DELETE", machines + in + "/virtualmachineinstancemigrations", ""},
		"read the keys of a migration":    {"GET", core + in + "/secrets/virt-launcher-machine-move", ""},
		"have a launcher evicted":         {"POST", core + in + "/pods/any/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"any"}}`},
		"move without the right to":       {"POST", machines + "/namespaces/" + h.own.Namespace + "/virtualmachineinstancemigrations", `{"spec":{"vmiName":"any"}}`},
		"decide about all machines":       {"POST", machines + "/namespaces/berth/kubevirts", `{}`},
		"decide about machines at home":   {"POST", machines + "/namespaces/" + h.own.Namespace + "/kubevirts", `{}`},
		"read a backup source":            {"GET", "/apis/berth.dev/v1alpha1" + in + "/volumebackupsources/any", ""},
		"make a backup source":            {"POST", "/apis/berth.dev/v1alpha1" + in + "/volumebackupsources", `{}`},
		"take a snapshot":                 {"POST", snapshots + in + "/virtualmachinesnapshots", `{}`},
		"restore a snapshot":              {"POST", snapshots + in + "/virtualmachinerestores", `{}`},
		"read the key of proofs":          {"GET", core + "/namespaces/berth/secrets/berth-clone-key", ""},
		"read all keys":                   {"GET", core + "/namespaces/berth/secrets", ""},
		"become the controller":           {"POST", core + "/namespaces/berth/serviceaccounts/berth-controller/token", token},
		"run a pod beside the controller": {"POST", core + "/namespaces/berth/pods", `{}`},
		"delete the controllers":          {"DELETE", core + "/namespaces/berth/pods", ""},
		"take the leader's lease":         {"GET", "/apis/coordination.k8s.io/v1/namespaces/berth/leases", ""},
		"change Berth's settings":         {"PATCH", volumes + "/cdis/cdi", touch},
		"change the cluster's settings":   {"PATCH", volumes + "/cdiconfigs/config", touch},
		"change a storage profile":        {"PATCH", volumes + "/storageprofiles/" + fixture.ClassDisk, touch},
		"move objects":                    {"POST", volumes + "/objecttransfers", `{}`},
		"turn admission off":              {"DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/berth", ""},
		"turn an API off":                 {"DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io", ""},
		"make a cluster's instance type":  {"POST", "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes", `{}`},
		"run beside the node agent":       {"POST", core + "/namespaces/berth-node/pods", `{}`},
		"run beside the driver":           {"POST", core + "/namespaces/localdisk/pods", `{}`},
	}
	out := attempts{}
	for name, row := range rows {
		out[name] = func(h *hostile) { h.forbidden(row) }
	}
	return out
}

// forbidden makes the request as the tenant and wants it to be refused for who they are.
func (h *hostile) forbidden(r ask403) {
	h.t().Helper()
	var code int
	path, query, _ := strings.Cut(r.path, "?")
	kind := "application/json"
	if r.verb == http.MethodPatch {
		kind = string(types.MergePatchType)
	}
	q := h.asCore.CoreV1().RESTClient().Verb(r.verb).AbsPath(path).SetHeader("Content-Type", kind)
	if key, value, ok := strings.Cut(query, "="); ok {
		q = q.Param(key, value)
	}
	if r.body != "" {
		q = q.Body([]byte(r.body))
	}
	answer, err := q.Do(h.own.Context()).StatusCode(&code).Raw()
	if code != http.StatusForbidden {
		h.t().Errorf("%s %s: got %d %v, want 403: %.300s", r.verb, r.path, code, err, answer)
	}
}

// source is the victim's claim as what a volume is cloned from.
func (h *hostile) source() *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: h.victim.Namespace, Name: "golden"}}
}

// clone is a volume of the tenant; its source is left to the caller.
func (h *hostile) clone(name string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: fixture.BlankDisk(fixture.ClassImmediate)}
	dv.Spec.Source = nil
	dv.Spec.Storage.Resources = fixture.StorageRequest("40Mi")
	return dv
}

func byDataSource(dv *cdiv1.DataVolume, name string) *cdiv1.DataVolume {
	dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: name}
	return dv
}

// dataSource returns a DataSource of the tenant's that refers to any claim.
func dataSource(name string, of *cdiv1.DataVolumeSourcePVC) *cdiv1.DataSource {
	return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: of}}}
}

// cloning is a machine of the tenant whose disk is made from the DataSource.
func (h *hostile) cloning(name, source string) *kubevirt.VirtualMachine {
	vm := h.yard(h.own).TinyMachine(name, fixture.ClassImmediate)
	t := &vm.Spec.DataVolumeTemplates[0]
	t.Spec = byDataSource(h.clone(""), source).Spec
	return vm
}

const notYours = "insufficient permissions"

// reads are ways to get at the data of the victim's claim.
var reads = attempts{
	"clone the claim": func(h *hostile) {
		dv := h.clone("direct")
		dv.Spec.Source = h.source()
		h.refused(dv, notYours)
	},
	"clone the machine": func(h *hostile) {
		if h.tries(h.yard(h.own).NewMachineClone("of-theirs", h.machine.Name, "loot")) {
			h.noMachine("loot")
		}
	},
	"clone a snapshot of a machine that never was": func(h *hostile) {
		h.restore("forged") // which is refused itself, and leaves its snapshot
		c := h.yard(h.own).NewMachineClone("of-forged", "of-forged", "forged-clone")
		group := "snapshot.kubevirt.io"
		c.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachineSnapshot", Name: "of-forged"}
		if h.tries(c) {
			h.neverFilled("forged-clone-0")
		}
	},
	"clone a snapshot": func(h *hostile) {
		dv := h.clone("snapshot")
		dv.Spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: h.victim.Namespace, Name: "any"}}
		h.refused(dv, notYours)
	},
	"clone through a DataSource of their own": func(h *hostile) {
		h.make(dataSource("leads-out", h.source().PVC))
		h.refusedOrEmpty(byDataSource(h.clone("by-reference"), "leads-out"))
	},
	"clone through a DataSource of a DataSource": func(h *hostile) {
		h.make(dataSource("far", h.source().PVC))
		near := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
		near.Spec.Source.DataSource = &cdiv1.DataSourceRefSourceDataSource{Namespace: h.own.Namespace, Name: "far"}
		h.make(near)
		h.refusedOrEmpty(byDataSource(h.clone("twice"), "near"))
	},
	"clone through a DataSource that comes later": func(h *hostile) {
		made := h.tries(byDataSource(h.clone("early"), "later"))
		h.make(dataSource("later", h.source().PVC))
		if made {
			h.neverFilled("early")
		}
	},
	"clone with a machine": func(h *hostile) {
		vm := h.yard(h.own).TinyMachine("clones", fixture.ClassImmediate)
		vm.Spec.DataVolumeTemplates[0].Spec = h.clone("").Spec
		vm.Spec.DataVolumeTemplates[0].Spec.Source = h.source()
		h.refused(vm, notYours)
	},
	"repoint a machine's DataSource": func(h *hostile) {
		h.make(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: fixture.BlankDisk(fixture.ClassImmediate)})
		h.make(dataSource("turns", &cdiv1.DataVolumeSourcePVC{Namespace: h.own.Namespace, Name: "mine"}))
		vm := h.cloning("turning", "turns")
		vm.Spec.RunStrategy = new(kubevirt.RunHalted)
		h.make(vm)
		h.repoint("turns")
		h.start(vm)
		h.neverFilled("turning-0")
	},
	"change the source of a volume": func(h *hostile) {
		h.make(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "changes"}, Spec: fixture.BlankDisk(fixture.ClassWaits)})
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			dv := h.own.ReadVolume("changes")
			dv.Spec.Source = h.source()
			return h.as.Update(h.own.Context(), dv)
		})
		if err == nil || !refusal(err) {
			h.t().Errorf("the source of a volume was changed: %v", err)
		}
		h.neverFilled("changes")
	},
	"schedule backups of another namespace": func(h *hostile) {
		// As an administrator of the own namespace, who may write schedules: the machine of that name is in another one.
		for name, machine := range map[string]string{"theirs": h.machine.Name, "by-path": h.victim.Namespace + "/" + h.machine.Name} {
			s := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: h.own.Namespace, Name: name}, Spec: accessv1.MachineScheduleSpec{
				Machine: machine, Schedule: "* * * * *", Backup: &accessv1.ScheduledBackup{PvcName: "golden"}}}
			err := h.own.Kube.Create(h.own.Context(), s)
			if name == "by-path" {
				if !apierrors.IsInvalid(err) {
					h.t().Errorf("a schedule names a machine of another namespace: %v", err)
				}
				continue
			}
			if err != nil {
				h.t().Fatal(err)
			}
			h.own.Wait("what the schedule says", quiet*4, func(ctx context.Context) (bool, string) {
				if err := h.own.Kube.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
					return false, err.Error()
				}
				return len(s.Status.Conditions) == 2 && s.Status.Conditions[1].Reason == "MachineMissing" && len(s.Status.Machines) == 0, fmt.Sprint(s.Status)
			})
		}
	},
	"restore a backup of another namespace": func(h *hostile) {
		theirs := &accessv1.VolumeBackupSource{ObjectMeta: metav1.ObjectMeta{Namespace: h.victim.Namespace, Name: "theirs"}, Spec: accessv1.VolumeBackupSourceSpec{
			Claim: &accessv1.BackupClaim{Name: "golden"}, Checkpoint: "b1", Volume: "root"}}
		if err := h.victim.Kube.Create(h.own.Context(), theirs); err != nil {
			h.t().Fatal(err)
		}
		dv := h.clone("of-backup")
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: accessv1.VolumeBackupSourceKind, Namespace: &h.victim.Namespace, Name: theirs.Name}
		h.refused(dv, "beside the volume")
		c := h.populated("of-backup-claim", accessv1.VolumeBackupSourceKind, theirs.Name)
		c.Spec.DataSourceRef.APIGroup, c.Spec.DataSourceRef.Namespace = &accessv1.GroupVersion.Group, &h.victim.Namespace
		if h.tries(c) {
			h.own.StaysPending(c.Name, quiet)
		}
	},
	"fetch a backup of another namespace": func(h *hostile) {
		y := h.yard(h.victim)
		y.CreateTracker("fetched", h.machine.Name)
		p := y.StartPull("fetched", "fetched")
		disk := p.Volumes()[0]
		for _, token := range []string{"", "secret-of-theirs", p.Token + "x", p.Token[1:]} {
			for _, url := range []string{disk.MapEndpoint, disk.DataEndpoint, disk.DataEndpoint + "?x-kubevirt-export-token=" + token, p.Base() + "/internal/manifests/all"} {
				if code, body := p.Ask(url, token); code != http.StatusUnauthorized || len(body) > 200 {
					h.t().Errorf("%s with token %q: %d, %d bytes", url, token, code, len(body))
				}
			}
		}
		for _, path := range []string{"/exports/", "/exports/other/data", "/exports/%2e%2e/%2e%2e/var/run/berth/tls/data", "/var/run/berth/tls/tls.key", "/internal/manifests/all"} {
			if code, body := p.Ask(p.Base()+path, p.Token); code != http.StatusNotFound || len(body) > 200 {
				h.t().Errorf("%s: %d, %d bytes", path, code, len(body))
			}
		}
		// As an administrator of the own namespace, who may make backups: there is no machine of that name in it.
		own := h.yard(h.own)
		own.CreateTracker("theirs", h.machine.Name)
		b := own.StartBackup("theirs", "theirs", "unused", func(s *backupv1.VirtualMachineBackupSpec) {
			s.Mode, s.TokenSecretRef = new(backupv1.PullMode), "any"
		})
		h.own.Stays("the machine of another namespace is not backed up", quiet, func(ctx context.Context) (bool, string) {
			err := h.own.Kube.Get(ctx, client.ObjectKeyFromObject(b), b)
			return err == nil && (b.Status == nil || b.Status.EndpointCert == nil && len(b.Status.IncludedVolumes) == 0), fmt.Sprint(err, b.Status)
		})
		p.End()
	},
	"name a source of another namespace": func(h *hostile) {
		h.victim.CreateCloneSource("os-reads", "golden")
		c := h.populated("stranger", "VolumeCloneSource", "os-reads")
		c.Spec.DataSourceRef.Namespace = &h.victim.Namespace
		if h.tries(c) {
			h.own.StaysPending("stranger", quiet)
		}
	},
	"forge the namespace of a source": func(h *hostile) {
		h.victim.CreateCloneSource("os-forged", "golden")
		for name, class := range map[string]string{"forged-space": fixture.ClassImmediate, "forged-static": fixture.ClassStatic} {
			c := h.populated(name, "VolumeCloneSource", "os-forged")
			c.Spec.StorageClassName = &class
			// As if it were empty, and its filling begun.
			c.Annotations = map[string]string{"berth.dev/source-namespace": h.victim.Namespace, "cdi.kubevirt.io/storage.persistentVolumeList": "[]",
				"berth.dev/source": "PersistentVolumeClaim/" + h.victim.Namespace + "/golden"}
			if !h.tries(c) {
				continue
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"berth.dev/may-fill":%q}}}`, c.UID)
			if err := h.as.Patch(h.own.Context(), c, client.RawPatch(types.MergePatchType, patch)); err != nil && !refusal(err) {
				h.t().Fatal(err)
			}
			h.own.UntilClaim(name, "to be refused", func(c *corev1.PersistentVolumeClaim) bool {
				return strings.Contains(c.Annotations[fixture.RunningMessageAnnotation], "no ReferenceGrant in namespace "+h.victim.Namespace)
			})
			if got := h.own.ReadClaim(name); got.Annotations[fixture.PodPhaseAnnotation] != "" {
				h.t().Errorf("claim %s is filled: %v", name, got.Annotations)
			}
		}
	},
	"fill a claim through a DataSource of their own": func(h *hostile) {
		h.make(dataSource("mine-of-theirs", h.source().PVC))
		near := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: "near-theirs"}}
		near.Spec.Source.DataSource = &cdiv1.DataSourceRefSourceDataSource{Namespace: h.own.Namespace, Name: "mine-of-theirs"}
		h.make(near)
		for name, source := range map[string]string{"through-one": "mine-of-theirs", "through-two": "near-theirs"} {
			if !h.tries(h.populated(name, cdiv1.DataVolumeDataSource, source)) {
				continue
			}
			h.own.ClaimSays(name, "no ReferenceGrant in namespace "+h.victim.Namespace)
			h.own.StaysPending(name, quiet)
		}
	},
	"turn a DataSource while a claim is filled from it": func(h *hostile) {
		h.make(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "bait"}, Spec: fixture.BlankDisk(fixture.ClassImmediate)})
		h.make(dataSource("bait", &cdiv1.DataVolumeSourcePVC{Namespace: h.own.Namespace, Name: "bait"}))
		c := h.populated("hooked", cdiv1.DataVolumeDataSource, "bait")
		c.Spec.StorageClassName = new(fixture.ClassWaits) // it waits for a consumer, and its source turns meanwhile
		if h.tries(c) {
			h.repoint("bait")
			h.own.ClaimSays("hooked", "no ReferenceGrant in namespace "+h.victim.Namespace)
			h.own.StaysPending("hooked", quiet)
		}
	},
	"open a library of images": func(h *hostile) {
		h.victim.CreateDataSource("library", cdiv1.DataSourceSource{PVC: h.source().PVC})
		c := h.populated("reader", cdiv1.DataVolumeDataSource, "library")
		c.Spec.DataSourceRef.Namespace = &h.victim.Namespace
		c.Labels = map[string]string{"images.berth.dev/" + h.victim.Namespace: "allowed", "berth.dev/image-library": "true"}
		if h.tries(c) {
			h.own.ClaimSays("reader", "no ReferenceGrant in namespace "+h.victim.Namespace)
			h.own.StaysPending("reader", quiet)
		}
	},
	"name a claim of another namespace": func(h *hostile) {
		c := h.populated("stranger-claim", "PersistentVolumeClaim", "golden")
		c.Spec.DataSourceRef.APIGroup, c.Spec.DataSourceRef.Namespace = nil, &h.victim.Namespace
		if h.tries(c) && c.Spec.DataSourceRef != nil { // an API server without the gate drops it: the claim is an empty one
			h.own.StaysPending("stranger-claim", quiet)
		}
	},
	"import a claim by a cron": func(h *hostile) {
		h.tries(h.cron("leaks", nil))
		h.neverFilled(h.importName("leaks"))
		h.unknown(string(h.golden.UID))
	},
	"use a disk of the node": func(h *hostile) {
		vm := h.yard(h.own).TinyMachine("host-disk")
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
			HostDisk: &kubevirt.HostDisk{Path: "/etc/shadow", Type: "Disk"}}}}
		h.tries(vm)
		h.noHostPaths("host-disk")
	},
	"use a disk of the node without a machine": func(h *hostile) {
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "host-disk-only"},
			Spec: h.yard(h.own).TinyMachine("x").Spec.Template.Spec}
		i.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
			HostDisk: &kubevirt.HostDisk{Path: "/var/lib/kubelet/pki/any.img", Type: "DiskOrCreate"}}}}
		h.tries(i)
		h.noHostPaths("host-disk-only")
	},
}

// refusedOrEmpty: admission refuses the volume if its cache has the DataSource; otherwise the controller does not fill it.
func (h *hostile) refusedOrEmpty(dv *cdiv1.DataVolume) {
	h.t().Helper()
	if h.tries(dv) {
		h.neverFilled(dv.Name)
	}
}

// populated is a claim of the tenant with a source.
func (h *hostile) populated(name, kind, source string) *corev1.PersistentVolumeClaim {
	class, group := fixture.ClassImmediate, cdiv1.SchemeGroupVersion.Group
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Resources: fixture.StorageRequest("64Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: source},
		},
	}
}

// repoint makes one of the tenant's DataSources stand for the victim's claim.
func (h *hostile) repoint(name string) {
	h.t().Helper()
	ds := dataSource(name, h.source().PVC)
	ds.Namespace = h.own.Namespace
	patch := fmt.Appendf(nil, `{"spec":{"source":{"pvc":{"namespace":%q,"name":"golden"}}}}`, h.victim.Namespace)
	if err := h.as.Patch(h.own.Context(), ds, client.RawPatch(types.MergePatchType, patch)); err != nil && !refusal(err) {
		h.t().Fatal(err)
	}
}

// start has the tenant let the machine run.
func (h *hostile) start(vm *kubevirt.VirtualMachine) {
	h.t().Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))
	if err := h.as.Patch(h.own.Context(), vm, patch); err != nil && !refusal(err) {
		h.t().Fatal(err)
	}
}

// unknown: nothing the tenant can read has this text in it, but for the name of the volume, which other attempts write there themselves.
func (h *hostile) unknown(text string) {
	h.t().Helper()
	h.own.Stays("the tenant does not learn "+text, quiet, func(ctx context.Context) (bool, string) {
		for _, list := range []client.ObjectList{&cdiv1.DataImportCronList{}, &cdiv1.DataVolumeList{}, &cdiv1.DataSourceList{},
			&corev1.EventList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := h.as.List(ctx, list, client.InNamespace(h.own.Namespace)); err != nil {
				return false, err.Error()
			}
			if found := strings.ReplaceAll(fmt.Sprintf("%+v", list), h.volume.Name, ""); strings.Contains(found, text) {
				return false, fmt.Sprintf("it is in a %T", list)
			}
		}
		return true, ""
	})
}

// noHostPaths: no pod of the instance sees a directory of its node.
func (h *hostile) noHostPaths(instance string) {
	h.t().Helper()
	h.own.Stays("no pod of "+instance+" has a directory of its node", quiet, func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := h.own.Kube.List(ctx, &pods, client.InNamespace(h.own.Namespace), client.MatchingLabels{"kubevirt.io/domain": instance}); err != nil {
			return false, err.Error()
		}
		for _, p := range pods.Items {
			for _, v := range p.Spec.Volumes {
				if v.HostPath != nil {
					return false, fmt.Sprintf("pod %s has %s", p.Name, v.HostPath.Path)
				}
			}
		}
		return true, ""
	})
}

// noMachine: the tenant has no machine of that name, and gets none.
func (h *hostile) noMachine(name string) {
	h.t().Helper()
	h.own.Stays("machine "+name+" is not made", quiet, func(ctx context.Context) (bool, string) {
		err := h.own.Kube.Get(ctx, types.NamespacedName{Namespace: h.own.Namespace, Name: name}, &kubevirt.VirtualMachine{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
