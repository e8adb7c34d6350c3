//go:build e2e

package install

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestUninstall takes Berth off a cluster where it is in use and then off one where it is not, and installs it again each time.
func TestUninstall(t *testing.T) {
	s := newSite(t)
	s.waitUnused()
	s.kubectl(machine+"---"+blank("spare"), "apply", "-f", "-")
	s.waitField("vm", "kept", ".status.printableStatus", "Running")
	s.waitField("dv", "spare", ".status.phase", "Succeeded")
	guest := s.launcher()
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), "kept-disk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole := true
	t.Cleanup(func() {
		if !whole {
			s.install() // whatever is tested next needs it
		}
	})

	s.refuses(nil, "Berth is in use", "1 VirtualMachine", "2 DataVolumes", "--with-data=keep")
	s.refuses([]string{"--with-data=lose"}, "it can be keep")
	s.refuses([]string{"--with-data=keep", "--as=nobody"}, `User "nobody" cannot list`)
	s.kubectl("", "label", "dv/spare", "pvc/spare", "berth.dev/installed=true") // anybody can do so with what is theirs
	if out, err := s.virtctl("uninstall", "--with-data=keep", "--dry-run"); err != nil || !strings.Contains(out, "would delete Deployment berth/berth-controller") ||
		strings.Contains(out, "CustomResourceDefinition") || !strings.Contains(out, "Stays: PersistentVolumeClaim "+s.Namespace+"/spare") {
		t.Fatalf("dry run: %v\n%s", err, out)
	}
	if !s.isNamespace("berth") {
		t.Fatal("a command that was refused, or only asked, has removed namespace berth")
	}

	whole = false
	s.takeOff("--with-data=keep")
	s.runsOn(guest)
	s.kubectl("", "get", "pvc", "spare")
	s.kubectl("", "delete", "dv", "spare", "--timeout=1m") // nobody is left who could hold it
	if now, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), "kept-disk", metav1.GetOptions{}); err != nil || now.UID != claim.UID {
		t.Fatalf("the claim was %s and is now %v (%v)", claim.UID, now.GetUID(), err)
	}
	s.takeOff("--with-data=keep") // what is done already does not disturb it

	s.install()
	s.waitField("vm", "kept", ".status.printableStatus", "Running")
	s.runsOn(guest)
	s.kubectl("", "delete", "vm", "kept", "--timeout=2m")
	s.waitUnused()

	s.takeOff()
	if _, err := s.Dynamic.Resource(definitions).Get(s.Context(), "datavolumes.cdi.kubevirt.io", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the definition of DataVolumes is still there: %v", err)
	}
	s.refuses(nil, "Berth is not installed")

	s.install()
	whole = true
	s.kubectl(blank("after"), "apply", "-f", "-")
	s.waitField("dv", "after", ".status.phase", "Succeeded")
}

// waitUnused waits until what this and other tests have left is gone.
func (s *site) waitUnused() {
	s.T.Helper()
	s.Wait("what tests have left to go", patience, func(context.Context) (bool, string) {
		left, err := s.command("bin/kubectl", "--kubeconfig", framework.Kubeconfig(s.T), "get", "vm,vmi,vmim,dv", "-A", "-o", "name")
		return err == nil && left == "", left
	})
}

// refuses checks that the command with these flags does nothing and says why.
func (s *site) refuses(flags []string, says ...string) {
	s.T.Helper()
	out, err := s.virtctl(append([]string{"uninstall"}, flags...)...)
	if err == nil {
		s.T.Fatalf("virtctl uninstall %s was not refused:\n%s", strings.Join(flags, " "), out)
	}
	for _, text := range says {
		if !strings.Contains(out, text) {
			s.T.Errorf("virtctl uninstall %s says nothing of %q:\n%s", strings.Join(flags, " "), text, out)
		}
	}
}

// takeOff uninstalls Berth.
func (s *site) takeOff(flags ...string) {
	s.T.Helper()
	out, err := s.virtctl(append([]string{"uninstall"}, flags...)...)
	if err != nil {
		s.T.Fatalf("virtctl uninstall %s: %v\n%s", strings.Join(flags, " "), err, out)
	}
	for _, name := range []string{"berth", "berth-node"} {
		if s.isNamespace(name) {
			s.T.Errorf("namespace %s is still there:\n%s", name, out)
		}
	}
}
