// Command describe gives a description to every field of the generated definitions in these directories that the API module they
// come from does not describe. It is an error if it has no words for one.
//
//	go run ./describe cdi instancetype
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// words are descriptions by the end of a field's path.
var words = map[string]string{
	".status.conditions":              "What is true of it, since when and why.",
	".conditions[].lastHeartbeatTime": "When it was last looked at.", ".conditions[].lastTransitionTime": "Since when it has this status.",
	".conditions[].message": "What it waits for and what to do.", ".conditions[].reason": "One word for why.", ".conditions[].status": "True, False or Unknown.",
	".template.metadata": "Labels and annotations of the volumes.",
	// cdis: accepted for compatibility
	".customizeComponents.flags.api": "Flags of the API server.", ".customizeComponents.flags.controller": "Flags of the controller.",
	".customizeComponents.flags.uploadProxy": "Flags of the upload proxy.", ".customizeComponents.patches": "Patches of components.",
	".customizeComponents.patches[].patch": "The patch.", ".customizeComponents.patches[].resourceName": "Name of the object to patch.",
	".customizeComponents.patches[].resourceType": "Kind of the object to patch.",
	// objecttransfers
	".spec.parentName": "Name of the transfer that this one is part of.", ".spec.source.apiVersion": "API version of the object.", ".spec.source.kind": "Kind of the object.",
	".spec.source.name": "Name of the object.", ".spec.source.namespace": "Namespace of the object.", ".spec.source.requiredAnnotations": "Annotations that the object must have.",
	".spec.target.name": "Name that the object gets.", ".spec.target.namespace": "Namespace that the object gets.",
	// instance types and preferences
	".gpus[].virtualGPUOptions": "Options of a virtual GPU.", "irtualGPUOptions.display": "Whether the GPU has a display.", ".hostDevices[].name": "Name of the device.",
	".cpu.spreadOptions": "How processors are spread over sockets, cores and threads.", ".custom.discardGranularity": "Smallest part that can be given back, in bytes.",
	".custom.logical": "Logical block size in bytes.", ".custom.physical": "Physical block size in bytes.",
}

func main() {
	for _, dir := range os.Args[1:] {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		for _, f := range files {
			err = errors.Join(err, describe(f))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "describe:", err)
			os.Exit(1)
		}
	}
}

func describe(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		if err := fill(schema["openAPIV3Schema"], ""); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	out, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, bytes.Join([][]byte{[]byte("---\n"), out}, nil), 0o644)
}

// fill describes the fields below a schema.
func fill(schema any, path string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	failed := errors.Join(fill(s["items"], path+"[]"), fill(s["additionalProperties"], path))
	fields, _ := s["properties"].(map[string]any)
	for name, f := range fields {
		field, _ := f.(map[string]any)
		where := path + "." + name
		if field["description"] == nil && where != ".metadata" {
			text := find(where)
			if text == "" {
				failed = errors.Join(failed, fmt.Errorf("no words for %s", where))
			}
			field["description"] = text
		}
		failed = errors.Join(failed, fill(field, where))
	}
	return failed
}

func find(path string) string {
	for end, text := range words {
		if strings.HasSuffix(path, end) {
			return text
		}
	}
	return ""
}
