//go:build host

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// suites of libiscsi's own test program that a disk which is only read is measured by.
var suites = []string{
	"ALL.TestUnitReady", "ALL.Inquiry", "ALL.Mandatory", "ALL.ModeSense6", "ALL.Read6", "ALL.Read10", "ALL.Read12", "ALL.Read16",
	"ALL.ReadCapacity10", "ALL.ReadCapacity16", "ALL.ReadOnly", "ALL.PreventAllow", "ALL.ReportSupportedOpcodes", "ALL.StartStopUnit",
	"ALL.Prefetch10", "ALL.Prefetch16", "ALL.iSCSIcmdsn",
}

var outcome = regexp.MustCompile(`(?m)^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)`)

// TestStreamConformance: libiscsi's test program finds nothing wrong with the target.
func TestStreamConformance(t *testing.T) {
	t.Parallel()
	images := inRegistry(t, containerDisk(t, diskNoise(8<<20, 1), true))
	url, _ := streaming(t, nil, images...)
	for _, suite := range suites {
		out, err := exec.CommandContext(t.Context(), "iscsi-test-cu", "--dataloss", "--test="+suite, url+"/0").CombinedOutput()
		found := outcome.FindStringSubmatch(string(out))
		if err != nil || found == nil || found[2] == "0" || found[4] != "0" {
			t.Errorf("%s: %v\n%s", suite, err, strings.TrimSpace(string(out)))
		}
	}
}
