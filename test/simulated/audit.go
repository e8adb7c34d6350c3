package simulated

import (
	"fmt"
	"os"
	"path/filepath"
)

// The API server's own record of what was written: who, which verb, which resource. It costs the server time, so no step is timed with it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
`

// auditFlags have the API server keep that record.
func (c *Cluster) auditFlags() ([]string, error) {
	policy := filepath.Join(c.Dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.AuditLog()}, nil
}

// AuditLog returns the file with that record.
func (c *Cluster) AuditLog() string { return filepath.Join(c.Dir, "audit.log") }
