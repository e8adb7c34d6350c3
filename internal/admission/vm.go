package admission

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/instancetype"
	"github.com/berth-vm/berth/internal/names"
)

// What the machine side's webhook is called and where it is. It is a configuration of its own: the machine side may run
// without the data side.
const (
	ValidatingMachine = "berth-machine"
	PathCheckMachine  = "/validate/virtualmachines"
	PathCheckInstance = "/validate/virtualmachineinstances"
)

// SetupMachine registers the checks of machines with the manager's webhook server. The KubeVirt configuration is in namespace.
func SetupMachine(ctx context.Context, mgr ctrl.Manager, writer *cluster.Writer, namespace string) error {
	clients, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("set up admission of machines: %w", err)
	}
	r := &runners{reviews: clients.AuthorizationV1().SubjectAccessReviews()}
	if r.self, err = ourselves(ctx, clients); err != nil {
		return err
	}
	m := &movers{reader: mgr.GetClient(), writer: writer, namespace: namespace, self: r.self}
	server := mgr.GetWebhookServer()
	server.Register(PathMigration, &admission.Webhook{Handler: admission.HandlerFunc(m.checkMigration)})
	server.Register(PathEvict, &admission.Webhook{Handler: admission.HandlerFunc(m.evict)})
	server.Register(PathContainers, &admission.Webhook{Handler: admission.HandlerFunc(r.authorise)})
	server.Register(PathCheckMachine, &admission.Webhook{Handler: specCheck[kubevirt.VirtualMachine]{check: checkMachine, at: templatePath}})
	server.Register(PathCheckInstance, &admission.Webhook{Handler: specCheck[kubevirt.VirtualMachineInstance]{check: checkInstance, at: specPath, self: r.self}})
	if err := mgr.AddReadyzCheck("machine-webhook", func(r *http.Request) error { return server.StartedChecker()(r) }); err != nil {
		return fmt.Errorf("set up admission of machines: %w", err)
	}
	return nil
}

var (
	templatePath = specPath.Child("template", "spec")
	claimsPath   = specPath.Child("volumeClaimTemplates")
)

// checkMachine judges a machine. What a name stands for is not looked up: it may come later, and the controller says
// what it lacks.
func checkMachine(_ context.Context, before, after *kubevirt.VirtualMachine) (causes, error) {
	if after == nil || after.DeletionTimestamp != nil || after.Spec.Template == nil ||
		before != nil && reflect.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	var c causes
	// The name becomes a label of all objects of the machine.
	if len(after.Name) > validation.LabelValueMaxLength {
		c.invalid(field.NewPath("metadata", "name"), "Name cannot be longer than %d characters", validation.LabelValueMaxLength)
	}
	if after.Spec.Running == nil && after.Spec.RunStrategy == nil {
		c.invalid(specPath.Child("running"), "RunStrategy must be specified")
	}
	checkDevices(&after.Spec.Template.Spec, templatePath, &c)
	checkClaimTemplates(after, &c)
	for i, t := range after.Spec.DataVolumeTemplates {
		name := t.ObjectMeta.Name
		used := slices.ContainsFunc(after.Spec.Template.Spec.AllVolumes(), func(v kubevirt.Volume) bool {
			return v.DataVolume != nil && v.DataVolume.Name == name ||
				v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Claim() == name
		})
		if !used {
			c.invalid(specPath.Child("dataVolumeTemplates").Index(i), "DataVolumeTemplate entry %s must be referenced in the VMI template's 'volumes' list", name)
		}
	}
	checkEarly(after, &c)
	checkMatchers(after, &c)
	err := checkContainers(&after.Spec.Template.Spec, &c)
	return c, err
}

// checkEarly: a disk can be used early if this machine has it made. Another DataVolume follows its own annotations.
func checkEarly(vm *kubevirt.VirtualMachine, c *causes) {
	for i, v := range vm.Spec.Template.Spec.Volumes {
		own := func(t kubevirt.DataVolumeTemplateSpec) bool {
			return v.DataVolume != nil && t.ObjectMeta.Name == v.DataVolume.Name
		}
		if v.BootEarly && !slices.ContainsFunc(vm.Spec.DataVolumeTemplates, own) {
			at := templatePath.Child("volumes").Index(i).Child("bootEarly")
			c.invalid(at, "volume %s: bootEarly is for a DataVolume that one of the machine's dataVolumeTemplates makes; annotate any other DataVolume with %s",
				v.Name, names.BootEarly)
		}
	}
}

// checkMatchers judges what the machine says of its instance type and preference.
func checkMatchers(vm *kubevirt.VirtualMachine, c *causes) {
	if m := vm.Spec.Instancetype; m != nil {
		checkMatcher(vm, *m, specPath.Child("instancetype"), []string{instancetype.KindType, instancetype.KindClusterType}, c)
		if m.InferFromVolumeFailurePolicy == nil || *m.InferFromVolumeFailurePolicy != kubevirt.IgnoreInferFromVolumeFailure {
			for _, p := range instancetype.Conflicts(&vm.Spec.Template.Spec) {
				c.invalid(p.Fields[0], "%s", p.Text)
			}
		}
	}
	if m := vm.Spec.Preference; m != nil {
		checkMatcher(vm, kubevirt.InstancetypeMatcher(*m), specPath.Child("preference"),
			[]string{instancetype.KindPreference, instancetype.KindClusterPreference}, c)
	}
}

func checkMatcher(vm *kubevirt.VirtualMachine, m kubevirt.InstancetypeMatcher, at *field.Path, kinds []string, c *causes) {
	if m.Kind != "" && !slices.Contains(kinds, instancetype.KindOf(m.Kind, kinds)) {
		c.invalid(at.Child("kind"), "%s is %s; it must be %s or %s", at.Child("kind"), m.Kind, kinds[0], kinds[1])
	}
	if m.InferFromVolume == "" {
		return
	}
	if m.Name != "" {
		c.invalid(at.Child("name"), "%s and %s are mutually exclusive: set one of them", at.Child("name"), at.Child("inferFromVolume"))
	}
	has := func(v kubevirt.Volume) bool { return v.Name == m.InferFromVolume }
	if !slices.ContainsFunc(vm.Spec.Template.Spec.AllVolumes(), has) {
		c.invalid(at.Child("inferFromVolume"), "unable to find volume %s to infer defaults", m.InferFromVolume)
	}
}
