// Package cdi holds the CDI resource that Berth starts with. The controller makes it where a cluster has none, and
// never changes one.
package cdi

import _ "embed"

// Default is the resource as YAML.
//
//go:embed cdi.yaml
var Default []byte
