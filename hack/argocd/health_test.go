// Package argocd runs Argo CD's own health scripts over everything that Berth can say of machines, instances and volumes: GitOps tools decide
// by them whether a rollout waits, goes on or has failed.
//
// It runs the scripts with a Lua library and no Argo CD. What the objects look like is in internal/state; here they are only filled in.
package argocd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/resource_customizations"
	lua "github.com/yuin/gopher-lua"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// health runs the script of a kind on an object, and returns its verdict.
func health(t *testing.T, kind string, object map[string]any) string {
	t.Helper()
	text, err := resource_customizations.Embedded.ReadFile(kind + "/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(string(text)); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	said, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("%s: the script returns %v", kind, l.Get(-1))
	}
	return said.RawGetString("status").String()
}

// value returns an object as Lua has it.
func value(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		t := l.NewTable()
		for key, x := range v {
			t.RawSetString(key, value(l, x))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, x := range v {
			t.Append(value(l, x))
		}
		return t
	case bool:
		return lua.LBool(v)
	case nil:
		return lua.LNil
	}
	return lua.LString(fmt.Sprint(v))
}

func condition(kind string, is bool, reason, message string) map[string]any {
	return map[string]any{"type": kind, "status": map[bool]string{true: "True", false: "False"}[is], "reason": reason, "message": message}
}

// TestHealth: every state has the verdict in the file. What is ready is Healthy, what is wrong never is, and a machine that is to be stopped and is so
// is Healthy too.
func TestHealth(t *testing.T) {
	var out strings.Builder
	for _, r := range state.MachineRows() {
		if r.Reason == state.AsInstance {
			continue // what is said of the instance is said
		}
		got := health(t, "kubevirt.io/VirtualMachine", machine(r, kubevirt.RunAlways))
		fmt.Fprintf(&out, "VirtualMachine %s %s -> %s", r.Status, r.Reason, got)
		if r.Instance != "" {
			instance := map[string]any{"status": map[string]any{"phase": string(r.Instance), "conditions": conditions(r)}}
			fmt.Fprintf(&out, ", its instance %s -> %s", r.Instance, health(t, "kubevirt.io/VirtualMachineInstance", instance))
		}
		fmt.Fprintln(&out)
		if r.Ready != (got == "Healthy") || r.Warn && got == "Healthy" {
			t.Errorf("a machine that is %s is %s", r.Reason, got)
		}
	}
	halted := state.OfMachine(state.Halted)
	if got := health(t, "kubevirt.io/VirtualMachine", machine(halted, kubevirt.RunHalted)); got != "Healthy" {
		t.Errorf("a machine that is to be stopped, and is, is %s", got)
	}
	for _, r := range state.Rows() {
		s := state.State{Row: r}
		got := health(t, "cdi.kubevirt.io/DataVolume", map[string]any{"status": map[string]any{"phase": string(r.Phase), "conditions": []any{
			condition("Running", r.Run == state.Moving, s.RunReason(), s.RunMessage()), condition("Ready", r.Ready, s.ReadyReason(), s.Text())}}})
		fmt.Fprintf(&out, "DataVolume %s %s -> %s\n", r.Phase, r.Reason, got)
		if (r.Phase == cdiv1.Succeeded) != (got == "Healthy") {
			t.Errorf("a volume that is %s is %s", r.Reason, got)
		}
	}
	golden.Equal(t, "testdata/health.txt", out.String())
}

// machine is one of which that row is said.
func machine(r state.MachineRow, s kubevirt.RunStrategy) map[string]any {
	return map[string]any{
		"spec": map[string]any{"runStrategy": string(s)},
		"status": map[string]any{"printableStatus": string(r.Status), "created": r.Instance != "",
			"conditions": conditions(r)},
	}
}

func conditions(r state.MachineRow) []any {
	all := []any{condition("Ready", r.Ready, string(r.Reason), r.Message)}
	if r.Reason == state.PausedByUser {
		all = append(all, condition("Paused", true, string(r.Reason), r.Message))
	}
	return all
}
