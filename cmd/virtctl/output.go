package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is how a document is written for a program: json or yaml.
type format string

func (f *format) bind(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "how to write it: json or yaml")
	choices(cmd, "output", "json", "yaml")
}

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	if text != "json" && text != "yaml" {
		return fmt.Errorf("%q is neither json nor yaml", text)
	}
	*f = format(text)
	return nil
}

func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (*format) Type() string { return "string" }

func (f *format) write(w io.Writer, document any) error {
	if *f == "yaml" {
		text, err := yaml.Marshal(document)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// choices completes a flag that takes one of the given words.
func choices(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
