package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// TestALauncherThatHasEnded: a container that has ended is the end, whatever the pod's phase says yet; one that is to be
// started again is not.
func TestALauncherThatHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		restart corev1.RestartPolicy
		code    int32
		report  string
		want    machine.Pod
		words   string
	}{
		"powered off":    {corev1.RestartPolicyNever, 0, `{"end":"PoweredOff","detail":"off"}`, machine.Done, "off"},
		"crashed":        {corev1.RestartPolicyNever, 1, `{"end":"Crashed","detail":"dead"}`, machine.Broken, "dead"},
		"without a word": {corev1.RestartPolicyNever, 137, "", machine.Broken, "code 137"},
		"given up":       {corev1.RestartPolicyNever, 0, `{"end":"Stopped"}`, machine.Broken, "the kubelet ended it"},
		"not answering":  {corev1.RestartPolicyNever, 1, `{"end":"Killed"}`, machine.Broken, "a liveness probe that failed"},
		"a holder's try": {corev1.RestartPolicyOnFailure, 1, "no disk", machine.Placed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1", RestartPolicy: c.restart}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: c.code, Message: c.report}}}}
			if got := observed.Situation(p); got != c.want {
				t.Errorf("it is %s, not %s", got, c.want)
			}
			if got := launcherpod.LastWords(p).Detail; c.words != "" && !strings.Contains(got, c.words) {
				t.Errorf("its last words are %q", got)
			}
		})
	}
}
