package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) expand() *cobra.Command {
	var name, file string
	output := format("yaml")
	cmd := &cobra.Command{
		Use: "expand (--vm NAME | --file FILE)", Short: "Show a virtual machine with everything its instance type and preference say",
		Long: "Show a virtual machine with everything that its instance type and its preference say. Nothing is changed.",
		Example: a.examples(`
  # Machine web as it would be without its instance type
  virtctl expand --vm=web

  # A machine that is still to be made; - is the standard input
  virtctl expand --file=web.yaml`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (name == "") == (file == "") {
				return misused(cmd, errors.New("error invalid arguments - VirtualMachine name or file must be provided"))
			}
			manifest, err := a.manifest(file)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			text, err := machine.Expand(cmd.Context(), c, name, manifest)
			if err != nil {
				return fmt.Errorf("error expanding VirtualMachine - %s in namespace - %s: %w", name, c.Namespace, err)
			}
			return a.document(output, text)
		},
	}
	cmd.Flags().StringVar(&name, "vm", "", "a machine of the cluster")
	cmd.Flags().StringVarP(&file, "file", "f", "", "a file with the manifest of a machine; - is the standard input")
	output.bind(cmd)
	return cmd
}

// manifest reads a file as JSON; without a file it returns nil.
func (a *app) manifest(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(a.in)
	} else {
		text, err = os.ReadFile(file)
	}
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the machine: %w", err)
	}
	return text, nil
}

func (a *app) document(output format, text []byte) error {
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("read the cluster's answer: %w", err)
	}
	return output.write(a.out, document)
}

func (a *app) objectGraph() *cobra.Command {
	var ofInstance, exclude bool
	var selector map[string]string
	output := format("json")
	cmd := &cobra.Command{
		Use: "objectgraph NAME", Short: "Show every object that a virtual machine needs",
		Long: "Show every object that a virtual machine needs, to back it up or to move it to another cluster.",
		Example: a.examples(`
  # Everything machine web needs
  virtctl objectgraph web

  # ... its disks only
  virtctl objectgraph web --selector=kubevirt.io/dependency-type=storage`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			include := !exclude
			o := machine.GraphOptions{IncludeOptionalNodes: &include}
			if len(selector) > 0 {
				o.LabelSelector = &metav1.LabelSelector{MatchLabels: selector}
			}
			kind, resource := "VirtualMachine", "virtualmachines"
			if ofInstance {
				kind, resource = "VirtualMachineInstance", "virtualmachineinstances"
			}
			text, err := machine.ObjectGraph(cmd.Context(), c, resource, args[0], o)
			if err != nil {
				return fmt.Errorf("error listing object graph of %s %s: %w", kind, args[0], err)
			}
			return a.document(output, text)
		},
	}
	cmd.Flags().BoolVar(&ofInstance, "vmi", false, "of the machine's present run")
	cmd.Flags().BoolVar(&exclude, "exclude-optional", false, "without what the machine can do without")
	cmd.Flags().StringToStringVar(&selector, "selector", nil, "only objects with these labels")
	output.bind(cmd)
	return cmd
}
