package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// parseSize reads a whole number of bytes with one of the suffixes Kubernetes quantities have. This binary has no
// Kubernetes library to do it.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits, unit := s, int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = d, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("size %q is not a positive number of bytes like 10Gi", s)
	}
	return n * unit, nil
}

// inBytes formats a number of bytes for a person.
func inBytes(n int64) string {
	for i := 4; i >= 0; i-- {
		if u := units[i]; n >= u.bytes {
			return fmt.Sprintf("%.1f %sB", float64(n)/float64(u.bytes), u.suffix)
		}
	}
	return fmt.Sprintf("%d B", n)
}
