//go:build peers && e2e

// Package takeover has Berth take over from CDI's own programs, which run on the cluster that E2E_KUBECONFIG names: its operator installs CDI
// from CDI's own manifests, CDI fills volumes in every way, Berth takes them over and goes back again. `make takeover-cdi` runs it, on a
// cluster without Berth; it is no part of `make test`, since CDI takes many minutes to compile. test/apiserver has what CDI leaves on an API
// server, and is.
package takeover

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m) }

// patience is for the slowest machine that the test is worth running on.
const patience = 5 * time.Minute

// site is a cluster as its administrator sees it.
type site struct {
	*framework.Env
	transcript bytes.Buffer
}

// in returns a command in the top directory of the project.
func (s *site) in(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), name, args...)
	cmd.Dir = "../.."
	return cmd
}

func (s *site) virtctl(args ...string) *exec.Cmd {
	return s.in("bin/virtctl", append([]string{"--kubeconfig", framework.Kubeconfig(s.T), "-n", s.Namespace}, args...)...)
}

// says runs a command of virtctl as a person would, and keeps both for the page that shows them.
func (s *site) says(args ...string) string {
	s.T.Helper()
	out, err := s.virtctl(args...).CombinedOutput()
	fmt.Fprintf(&s.transcript, "$ virtctl %s\n%s", strings.Join(args, " "), out)
	if err != nil {
		s.T.Fatalf("virtctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *site) try(stdin string, args ...string) (string, error) {
	cmd := s.in("bin/kubectl", append([]string{"--kubeconfig", framework.Kubeconfig(s.T), "-n", s.Namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *site) kubectl(stdin string, args ...string) string {
	s.T.Helper()
	out, err := s.try(stdin, args...)
	if err != nil {
		s.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// apply makes objects, and waits for webhooks that do not answer yet.
func (s *site) apply(text string) { s.T.Helper(); s.applyIn(s.Namespace, text) }

func (s *site) applyIn(namespace, text string) {
	s.T.Helper()
	s.Wait("objects to be taken", patience, func(context.Context) (bool, string) {
		out, err := s.try(text, "-n", namespace, "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err == nil, out
	})
}

// waitField waits until kubectl prints one of those values with -o jsonpath.
func (s *site) waitField(kind, name, path string, want ...string) {
	s.T.Helper()
	s.Wait(fmt.Sprintf("%s %s to have %s=%s", kind, name, path, strings.Join(want, " or ")), patience, func(context.Context) (bool, string) {
		out, err := s.try("", "get", kind, name, "-o", "jsonpath={"+path+"}")
		for _, w := range want {
			if err == nil && out == w {
				return true, out
			}
		}
		return false, out
	})
}

// cdiSettings is the resource of CDI, with settings of an administrator that Berth has to keep. Scratch space is of a class that waits for its
// pod: volumes of this cluster are on one node each, and it must be on that of the claim that is filled.
const cdiSettings = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: CDI
metadata: {name: cdi}
spec:
  imagePullPolicy: IfNotPresent
  config:
    featureGates: [HonorWaitForFirstConsumer]
    scratchSpaceStorageClass: local
    filesystemOverhead: {global: "0.08"}
    podResourceRequirements: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: 10m, memory: 32Mi}}
    insecureRegistries: [%s]
  workload: {nodeSelector: {kubernetes.io/os: linux}}
`

// profile is an administrator's storage profile of a class: it leaves clones to the driver.
const profile = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: StorageProfile
metadata: {name: localdisk-immediate}
spec: {cloneStrategy: csi-clone}
`

// installDriver installs a storage driver, which CDI fills volumes of by its populators, and not directly. It stays: volumes
// of the test's namespace go after the test.
func (s *site) installDriver() {
	s.T.Helper()
	s.kubectl("", "-n", "localdisk", "apply", "--server-side", "--force-conflicts", "-k", "config/localdisk")
	s.kubectl("", "-n", "localdisk", "rollout", "status", "daemonset", "--timeout=5m")
}

// refusesOfAnother: a clone from another namespace that has not begun stands in the way, and nothing is changed for it.
func (s *site) refusesOfAnother(other *site) {
	s.T.Helper()
	other.apply(dataVolume("of-another", "localdisk", ofClaim(s.Namespace, "csi"), ""))
	other.waitField("dv", "of-another", ".status.phase", "PendingPopulation")
	for _, args := range [][]string{{"takeover", "check"}, {"takeover"}} {
		if out, err := s.virtctl(args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "of-another: it is cloned from another namespace") {
			s.T.Errorf("virtctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	other.kubectl("", "delete", "dv", "of-another", "--timeout=2m")
}

// installCDI installs CDI's operator, which installs the rest. Both are removed when the test ends.
func (s *site) installCDI(registry string) {
	s.T.Helper()
	for _, name := range []string{"berth", "cdi"} {
		if _, err := s.Client.CoreV1().Namespaces().Get(s.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			s.T.Fatalf("this test needs a cluster without Berth and without CDI, and there is namespace %s (%v)", name, err)
		}
	}
	generator := s.in("go", "-C", "hack/peers", "run", "./manifest", "cdi", images.CDIImage("%s"))
	var failed bytes.Buffer
	generator.Stderr = &failed
	operator, err := generator.Output()
	if err != nil {
		s.T.Fatalf("print CDI's manifests: %v\n%s", err, failed.String())
	}
	s.T.Cleanup((&site{Env: s.Outliving()}).removeCDI)
	s.kubectl("", "create", "namespace", "cdi")
	s.applyIn("cdi", string(operator))
	s.apply(fmt.Sprintf(cdiSettings, registry))
	s.waitField("cdi", "cdi", ".status.phase", "Deployed")
}

// removeCDI removes all that a takeover leaves of CDI, and Berth where the test ended early.
func (s *site) removeCDI() {
	if s.T.Failed() {
		for _, what := range [][]string{{"get", "cdi,deploy,pods,apiservices", "-A"}, {"-n", "cdi", "logs", "deploy/cdi-operator", "--tail=40"}, {"-n", "cdi", "logs", "deploy/cdi-deployment", "--tail=60"},
			{"get", "dv,pvc,pods,dataimportcrons,datasources", "-o", "wide"}} {
			out, _ := s.try("", what...)
			s.T.Logf("kubectl %s\n%s", strings.Join(what, " "), out)
		}
	}
	_, _ = s.try("", "delete", "dv,dataimportcron,pvc,pods", "--all", "--timeout=2m")
	if out, err := s.try("", "get", "namespace", "berth", "-o", "name"); err == nil {
		_ = s.virtctl("uninstall", "--with-data=keep").Run()
		s.T.Logf("Berth was left: %s", out)
	}
	if out, err := s.try("", "delete", "cdi", "cdi", "--ignore-not-found", "--timeout=2m"); err != nil {
		s.T.Errorf("CDI's operator does not remove CDI: %v\n%s", err, out)
	}
	for _, what := range []string{"namespace cdi", "clusterrole,clusterrolebinding -l operator.cdi.kubevirt.io", "clusterrole,clusterrolebinding -l cdi.kubevirt.io",
		"mutatingwebhookconfiguration,validatingwebhookconfiguration,apiservice -l cdi.kubevirt.io"} {
		_, _ = s.try("", append([]string{"delete", "--ignore-not-found", "--timeout=2m"}, strings.Fields(what)...)...)
	}
	out, _ := s.try("", "get", "crd", "-o", "name")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "cdi.kubevirt.io") {
			_, _ = s.try("", "delete", strings.TrimSpace(line), "--timeout=2m")
		}
	}
}
