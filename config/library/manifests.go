package library

import (
	"bytes"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"
)

// empty is a status that says nothing, as Go writes it.
var empty = regexp.MustCompile(`(?m)^ *status: \{\}\n`)

// Manifests are the generated files, by name.
func Manifests() (map[string][]byte, error) {
	files := map[string][]byte{}
	var err error
	if files["images.yaml"], err = write(Crons(), "images"); err != nil {
		return nil, err
	}
	if files["instancetypes.yaml"], err = write(Instancetypes(), "instance types"); err != nil {
		return nil, err
	}
	files["preferences.yaml"], err = write(ClusterPreferences(), "preferences")
	return files, err
}

// write has a document for each object.
func write[T any](objects []T, what string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The %s of the library, from the tables of library.go by go generate ./config/library; do not edit.\n", what)
	for i := range objects {
		text, err := yaml.Marshal(&objects[i])
		if err != nil {
			return nil, fmt.Errorf("write the %s: %w", what, err)
		}
		// what is empty is left out, as a person would
		text = empty.ReplaceAll(text, nil)
		fmt.Fprintf(&b, "---\n%s", text)
	}
	return b.Bytes(), nil
}
