package localdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/usagetype"
)

// A node may have more pools than one: each further one is of a usage type, such as "fast", and is found from the annotations of
// the driver's own pod, which also mounts it. Its volumes are asked for with a parameter of the class.

var usagePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,44}[a-z0-9])?$`) // with its prefix a label's name

// UsageTypes reads the usage types of a pod from its annotations, as the kubelet writes them into a file: name="value" a line. The
// result has the directory of each.
func UsageTypes(file string) (map[string]string, error) {
	out := map[string]string{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the pod's annotations: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		key, quoted, ok := strings.Cut(strings.TrimSpace(line), "=")
		name, ours := strings.CutPrefix(key, usagetype.Annotation)
		if !ok || !ours {
			continue
		}
		dir, err := strconv.Unquote(quoted)
		switch {
		case err != nil:
			return nil, fmt.Errorf("annotation %s: %w", key, err)
		case !usagePattern.MatchString(name):
			return nil, fmt.Errorf("annotation %s: a usage type is at most 46 lower case letters, digits and '-'", key)
		case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
			return nil, fmt.Errorf("annotation %s: %q is not the path of a directory", key, dir)
		}
		out[name] = dir
	}
	return out, nil
}
