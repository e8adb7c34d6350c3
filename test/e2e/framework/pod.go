//go:build e2e

package framework

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Pod is a pod as tests need one: a shell script in busybox, with claims, perhaps on a certain node.
type Pod struct {
	Name   string
	Script string
	// Node, if set, is where the scheduler must put it; it decides about the pod's claims as for any other pod.
	Node string
	// Claims are mounted at /NAME; a Block claim appears as the device /dev/NAME.
	Claims []string
	Labels map[string]string
	// User is the user to run as, meeting the restricted Pod Security standard; 0 for root.
	User int64
	// Change, if set, may change anything else.
	Change func(*corev1.Pod)
}

// podPatience is how long a pod may take to start on a busy machine.
const podPatience = 3 * time.Minute

// Start creates the pod.
func (e *Env) Start(p Pod) *corev1.Pod {
	e.T.Helper()
	pod, err := e.Client.CoreV1().Pods(e.Namespace).Create(e.Context(), e.Render(p), metav1.CreateOptions{})
	if err != nil {
		e.T.Fatalf("create pod %s: %v", p.Name, err)
	}
	return pod
}

// Render returns the pod that Start creates.
func (e *Env) Render(p Pod) *corev1.Pod {
	e.T.Helper()
	grace := int64(0)
	container := corev1.Container{Name: "main", Image: "busybox", Command: []string{"sh", "-ec", p.Script}, ImagePullPolicy: corev1.PullIfNotPresent}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace},
	}
	for _, claim := range p.Claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		if e.isBlock(claim) {
			container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: claim, DevicePath: "/dev/" + claim})
		} else {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
		}
	}
	if p.Node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Node}
	}
	if p.User != 0 {
		restrict(&pod.Spec, &container, p.User)
	}
	pod.Spec.Containers = []corev1.Container{container}
	if p.Change != nil {
		p.Change(pod)
	}
	return pod
}

func restrict(spec *corev1.PodSpec, container *corev1.Container, user int64) {
	yes, no := true, false
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, RunAsNonRoot: &yes,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	container.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func (e *Env) isBlock(claim string) bool {
	e.T.Helper()
	pvc, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(e.Context(), claim, metav1.GetOptions{})
	if err != nil {
		e.T.Fatalf("read claim %s: %v", claim, err)
	}
	return pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// Run runs the pod to its end, fails the test unless it succeeds, deletes it, and returns what it printed.
func (e *Env) Run(p Pod) string {
	e.T.Helper()
	e.Start(p)
	pod := e.WaitPhase(p.Name, corev1.PodSucceeded)
	out := e.Output(pod.Name)
	e.Delete(pod.Name)
	return out
}

// WaitRunning waits until the pod runs.
func (e *Env) WaitRunning(name string) *corev1.Pod {
	e.T.Helper()
	return e.WaitPhase(name, corev1.PodRunning)
}

// WaitPhase waits until the pod is in that phase. A pod that failed, or ended although it should run, fails the test with its output.
func (e *Env) WaitPhase(name string, want corev1.PodPhase) *corev1.Pod {
	e.T.Helper()
	var pod *corev1.Pod
	e.Wait(fmt.Sprintf("pod %s to be %s", name, want), podPatience, func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = e.Client.CoreV1().Pods(e.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		if over := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded; over && pod.Status.Phase != want {
			e.T.Fatalf("pod %s is %s, wanted %s; it printed:\n%s", name, pod.Status.Phase, want, e.Output(name))
		}
		return pod.Status.Phase == want, describePod(pod)
	})
	return pod
}

func describePod(pod *corev1.Pod) string {
	out := string(pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			out += "; " + c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			out += "; " + w.Reason + " " + w.Message
		}
	}
	return out
}

// Output returns the output of the pod so far.
func (e *Env) Output(name string) string {
	e.T.Helper()
	stream, err := e.Client.CoreV1().Pods(e.Namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(e.Context())
	if err != nil {
		return fmt.Sprintf("(no output: %v)", err)
	}
	defer stream.Close()
	const enough = 1 << 20
	data, err := io.ReadAll(io.LimitReader(stream, enough))
	if err != nil {
		e.T.Fatalf("read output of pod %s: %v", name, err)
	}
	return string(data)
}

// Delete deletes a pod and waits until it is gone, so that its claims are free for the next. A controller may make another of
// that name at once, which is not the one that was deleted.
func (e *Env) Delete(name string) {
	e.T.Helper()
	pods, grace := e.Client.CoreV1().Pods(e.Namespace), int64(0)
	old, err := pods.Get(e.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.T.Fatalf("read pod %s: %v", name, err)
	}
	if err := pods.Delete(e.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		e.T.Fatalf("delete pod %s: %v", name, err)
	}
	e.Wait("pod "+name+" to be gone", time.Minute, func(ctx context.Context) (bool, string) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, err.Error()
		}
		return pod.UID != old.UID, describePod(pod)
	})
}

// Sum is the sha256 of a claim's content: of the whole device if it is a Block claim, else of that file in it.
func (e *Env) Sum(claim, file string) string {
	e.T.Helper()
	target := path.Join("/", claim, file)
	if e.isBlock(claim) {
		target = "/dev/" + claim
	}
	out := e.Run(Pod{Name: "sum-" + claim, Script: "sha256sum " + target, Claims: []string{claim}})
	sum, _, _ := strings.Cut(out, " ")
	if len(sum) != 64 {
		e.T.Fatalf("sha256 of %s in claim %s: got %q", file, claim, out)
	}
	return sum
}
