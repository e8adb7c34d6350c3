// Package machinefields is the one table of what each field of a machine's spec does: it works, it is accepted without effect, or it is
// refused. Admission warns and refuses by it, the controller does not start a machine that admission would have refused, and
// docs/reference/machines.md is written from it.
//
// It looks at documents, not at Go types: a field is known by its path. What a field that works does is not its business.
package machinefields

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:generate go run ./gen ../../docs/reference/machines.md

// Effect says what a field does.
type Effect string

// The effects.
const (
	Works    Effect = "works"
	NoEffect Effect = "no effect" // it is accepted, with a warning
	Refused  Effect = "refused"
)

// Field is a row of the table. It applies to all fields below its path that have no row of their own.
type Field struct {
	Path   string // of the JSON document, with [] after a list
	Effect Effect
	Note   string // why it has no effect or is refused, as the sentence to the user says it
	Unless string // a value that asks for nothing, besides false, nothing, and {enabled: false}
}

// Finding is a field of a document that has no effect or is refused.
type Finding struct {
	Field
	At string // the path in the document, with indices
}

// Message tells the user about the finding.
func (f Finding) Message() string {
	if f.Effect == Refused {
		return fmt.Sprintf("%s is not supported: %s", f.At, f.Note)
	}
	return fmt.Sprintf("%s has no effect: %s", f.At, f.Note)
}

// Find returns the fields of an instance's spec that have no effect or are refused, in the order of their paths. at is where the spec is.
func Find(spec map[string]any, at string) []Finding {
	var out []Finding
	find(spec, "", at, &out)
	return out
}

// Unsupported returns which fields of an instance's spec, of whatever Go type, are refused, as sentences; empty: none. at is
// where the spec is.
func Unsupported(spec any, at string) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("write the spec down: %w", err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("read the spec: %w", err)
	}
	var out []string
	for _, f := range Find(document, at) {
		if f.Effect == Refused {
			out = append(out, f.Message())
		}
	}
	return strings.Join(out, "; "), nil
}

func find(value any, path, at string, out *[]Finding) {
	if row, ok := byPath[path]; ok && row.Effect != Works {
		if !row.asks(value) {
			return
		}
		*out = append(*out, Finding{Field: row, At: at})
		if row.Effect == Refused {
			return
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			find(v[name], strings.TrimPrefix(path+"."+name, "."), at+"."+name, out)
		}
	case []any:
		for i, item := range v {
			find(item, path+"[]", fmt.Sprintf("%s[%d]", at, i), out)
		}
	}
}

// asks reports whether the value asks for what the field does. A feature that is switched off does not.
func (f Field) asks(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != "" && v != f.Unless
	case []any:
		return slices.ContainsFunc(v, f.asks)
	case map[string]any:
		if len(v) == 1 && f.Unless != "" { // a device with nothing but its model
			for _, only := range v {
				return f.asks(only)
			}
		}
		return v["enabled"] != false
	}
	return true
}

var byPath = func() map[string]Field {
	out := map[string]Field{}
	for _, f := range Instance {
		out[f.Path] = f
	}
	return out
}()
