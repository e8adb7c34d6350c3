package createvm

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// params are the parameters of "key:value,key:value" that were not read yet.
type params map[string]string

func parse(text string) (params, error) {
	p := params{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(part, ":")
		if !found || key == "" || value == "" {
			return nil, fmt.Errorf("%q is not key:value, as in src:NAME", part)
		}
		if _, twice := p[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		p[key] = value
	}
	return p, nil
}

// take removes and returns a value, or the other if there is none.
func (p params) take(key, otherwise string) string {
	value, ok := p[key]
	if !ok {
		return otherwise
	}
	delete(p, key)
	return value
}

func (p params) need(key string) (string, error) {
	value := p.take(key, "")
	if value == "" {
		return "", fmt.Errorf("%s is missing", key)
	}
	return value, nil
}

func (p params) bootOrder() (uint, error) {
	text := p.take("bootorder", "")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bootorder %q is not a number from 1 on", text)
	}
	return uint(n), nil
}

func (p params) size(needed bool) (*resource.Quantity, error) {
	size, err := p.amount("size")
	if err == nil && size == nil && needed {
		err = errors.New("size is missing: say how large the disk is to be, as in size:10Gi")
	}
	return size, err
}

// Plausible refuses a size that no disk has: its unit was forgotten.
func Plausible(size resource.Quantity) error {
	if size.CmpInt64(1<<20) < 0 {
		return fmt.Errorf("size %s is %d bytes: say the unit, as in 10Gi", size.String(), size.Value())
	}
	return nil
}

// url returns an address of one of the schemes.
func (p params) url(schemes ...string) (string, error) {
	text, err := p.need("url")
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) {
		return "", fmt.Errorf("url %q does not begin with %s", text, strings.Join(schemes, ":// or ")+"://")
	}
	return text, nil
}

// rest refuses parameters that were not used.
func (p params) rest() error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("unknown parameters: %s", strings.Join(slices.Sorted(maps.Keys(p)), ", "))
}
