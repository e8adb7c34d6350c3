package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// Status is the output of `kubebox status`, as text for people or as JSON for programs.
type Status struct {
	State      string `json:"state"` // Running, Stopped, None, or Broken
	Kubeconfig string `json:"kubeconfig"`
	APIServer  string `json:"apiServer"`
	// HostIP and HostName are this machine as pods reach it.
	HostIP   string          `json:"hostIP"`
	HostName string          `json:"hostName"`
	Registry string          `json:"registry"`
	Machines []MachineStatus `json:"machines"`
}

// MachineStatus is the state of the control machine or a node.
type MachineStatus struct {
	Name       string           `json:"name"`
	IP         string           `json:"ip"`
	State      string           `json:"state"` // Running, Ready, NotReady, Cut, or Stopped
	PID        int              `json:"pid,omitempty"`
	Components []machine.Status `json:"components,omitempty"`
}

// Status looks the cluster up; it changes nothing and needs no root.
func (b *Box) Status(ctx context.Context) (Status, error) {
	s := Status{State: "Running", Kubeconfig: b.Layout.Kubeconfig(), APIServer: "https://" + plan.APIServerAddr(),
		HostIP: plan.HostIP, HostName: plan.HostName, Registry: plan.RegistryAddr}
	c, err := state.Load(b.Layout.Dir)
	if errors.Is(err, state.ErrNone) {
		s.State = "None"
		return s, nil
	}
	if err != nil {
		return s, err
	}
	ms, _, err := b.machines()
	if err != nil {
		return s, err
	}
	ready := b.readiness(ctx)
	machines := []MachineStatus{{Name: plan.ControlName, IP: plan.ControlIP, State: "Running"}}
	for _, n := range c.Nodes {
		m := MachineStatus{Name: n.Name, IP: n.IP(), State: "NotReady"}
		if slices.Contains(c.Cut, n.Name) {
			m.State = "Cut"
		} else if ready[n.Name] {
			m.State = "Ready"
		}
		machines = append(machines, m)
	}
	for i := range machines {
		m := &machines[i]
		r, up := running(ms, m.Name)
		if !up {
			m.State = "Stopped"
			continue
		}
		m.PID = r.PID
		m.Components, _ = machine.ReadStatus(b.Layout, m.Name) // none is shown while it is being replaced
	}
	s.Machines = machines
	switch {
	case len(ms) == 0:
		s.State = "Stopped"
	case machines[0].State == "Stopped":
		s.State = "Broken"
	}
	return s, nil
}

// readiness asks the API server which nodes are Ready; without an answer, none is.
func (b *Box) readiness(ctx context.Context) map[string]bool {
	ready := map[string]bool{}
	client, err := b.client()
	if err != nil {
		return ready
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ready
	}
	for _, n := range list.Items {
		ready[n.Name] = readyCondition(&n).Status == corev1.ConditionTrue
	}
	return ready
}

// Print writes the status for people.
func (s Status) Print(w io.Writer) {
	fmt.Fprintf(w, "cluster:    %s\n", s.State)
	if s.State == "None" {
		return
	}
	fmt.Fprintf(w, "kubeconfig: %s\nAPI server: %s\nthis machine, from pods: %s (%s)\n\n", s.Kubeconfig, s.APIServer, s.HostIP, s.HostName)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "MACHINE\tADDRESS\tSTATE\tCOMPONENTS")
	for _, m := range s.Machines {
		var parts []string
		for _, c := range m.Components {
			part := c.Component
			if c.PID == 0 {
				part += " (not running)"
			}
			if c.Deaths > 0 {
				part += fmt.Sprintf(" (died %d times)", c.Deaths)
			}
			parts = append(parts, part)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, m.IP, m.State, strings.Join(parts, ", "))
	}
	t.Flush()
}

// JSON writes the status for programs.
func (s Status) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

// summarize ends a successful `up`.
func (b *Box) summarize(c state.Cluster) {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	b.say("Ready: %s", strings.Join(names, ", "))
	fmt.Fprintf(b.Out, "\n  export KUBECONFIG=%s\n  pods reach this machine at %s (%s)\n", b.Layout.Kubeconfig(), plan.HostIP, plan.HostName)
}

// Logs prints the last lines of a component's logs, of all machines that run it or of one ("node1/kubelet"); all logs' names without.
func (b *Box) Logs(component string, lines int) error {
	pattern := b.Layout.Log("*", "*")
	if owner, name, one := strings.Cut(component, "/"); one {
		pattern = b.Layout.Log(owner, name)
	} else if component != "" {
		pattern = b.Layout.Log("*", component)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("find logs of %q: %w", component, err)
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no log of %q: `kubebox logs` lists them", component)
	}
	for _, f := range files {
		rel := strings.TrimSuffix(strings.TrimPrefix(f, filepath.Join(b.Layout.Dir, "logs")+"/"), ".log")
		if component == "" {
			fmt.Fprintln(b.Out, rel)
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		all := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		for _, line := range all[max(0, len(all)-lines):] {
			fmt.Fprintf(b.Out, "%s: %s\n", rel, line)
		}
	}
	return nil
}
