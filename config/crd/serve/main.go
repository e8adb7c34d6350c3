// Command serve adds a version to a generated definition that has the schema of its only one, which stays the version that objects are stored
// in. The API server converts between the two by changing apiVersion alone.
//
//	go run ./serve export/export.kubevirt.io_virtualmachineexports.yaml v1
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "serve: a file and a version are needed")
		os.Exit(1)
	}
	if err := add(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func add(file, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return fmt.Errorf("%s has %d versions, not one", file, len(versions))
	}
	only, ok := versions[0].(map[string]any)
	if !ok {
		return errors.New("a version is not an object")
	}
	next := maps.Clone(only)
	next["name"], next["storage"] = version, false
	spec["versions"] = []any{next, only}
	out, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644)
}
