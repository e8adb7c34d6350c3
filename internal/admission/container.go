package admission

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/rights"
	"github.com/berth-vm/berth/internal/render"
)

// PathContainers is the path of the webhook that decides which users may have a machine's containers run. If it does not answer,
// none may, because the controller runs them with its own rights.
const PathContainers = "/authorise/containers"

// checkContainers refuses containers that an ordinary tenant could not run.
func checkContainers(spec *kubevirt.VirtualMachineInstanceSpec, c *causes) error {
	for _, v := range spec.AllVolumes() {
		if v.Container == nil {
			continue
		}
		why, err := render.Restricted(v.Container)
		if err != nil {
			return err
		}
		if why != "" {
			c.invalid(templatePath.Child("volumes").Key(v.Name).Child("container"), "the container of volume %s cannot be run: %s", v.Name, why)
		}
	}
	return nil
}

// runners are the namespaces and users that may have containers run.
type runners struct {
	reviews rights.Reviews
	self    string // the user that we are
}

// authorise lets a user name a container in a machine if they could run it themselves, that is, create pods: with whatever
// ServiceAccount of the namespace, as Kubernetes has it. A container that was there before stays when another user changes the
// machine. Berth itself may add none: a restore writes what a snapshot contains, and users who may write snapshots could put
// anything there.
func (r *runners) authorise(ctx context.Context, req admission.Request) admission.Response {
	after, err := decode[kubevirt.VirtualMachine](req.Object.Raw)
	if err != nil || after == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the machine whose containers are to be run: %w", err))
	}
	before, err := decode[kubevirt.VirtualMachine](req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if after.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	had := containers(before)
	for name, c := range containers(after) {
		if was := had[name]; was != nil && equality.Semantic.DeepEqual(*was, *c) {
			continue
		}
		if req.UserInfo.Username == r.self {
			return admission.Denied(fmt.Sprintf("the machine does not have the container of volume %s, and a restore cannot bring one: add it to the machine first", name))
		}
		may, err := rights.MayRun(ctx, r.reviews, rights.Of(req.UserInfo), req.Namespace)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if !may {
			return admission.Denied(fmt.Sprintf("User %s may not create pods in namespace %s, and so may not have the container of volume %s run",
				req.UserInfo.Username, req.Namespace, name))
		}
		return admission.Allowed("") // it is the same right for all of them
	}
	return admission.Allowed("")
}

// containers returns those of a machine, by volume.
func containers(vm *kubevirt.VirtualMachine) map[string]*kubevirt.ContainerSource {
	out := map[string]*kubevirt.ContainerSource{}
	if vm == nil || vm.Spec.Template == nil {
		return out
	}
	for _, v := range vm.Spec.Template.Spec.AllVolumes() {
		if v.Container != nil {
			out[v.Name] = v.Container
		}
	}
	return out
}

// ourselves returns the user that we are to the API server.
func ourselves(ctx context.Context, clients kubernetes.Interface) (string, error) {
	self, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("set up admission: ask who we are: %w", err)
	}
	return self.Status.UserInfo.Username, nil
}
