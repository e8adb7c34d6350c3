package instancetype

import (
	"kubevirt.io/api/instancetype/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

type requirements = *v1beta1.PreferenceRequirements

// topology returns the layout of a number of processors. Without a preference each is a socket, because sockets can be added.
func topology(guest uint32, p *Preference) kubevirt.CPU {
	one := kubevirt.CPU{Sockets: 1, Cores: 1, Threads: 1}
	guest = max(guest, 1)
	switch preferred(p) {
	case v1beta1.Cores, v1beta1.DeprecatedPreferCores:
		one.Cores = guest
	case v1beta1.Threads, v1beta1.DeprecatedPreferThreads:
		one.Threads = guest
	case v1beta1.Spread, v1beta1.DeprecatedPreferSpread:
		return spread(guest, p)
	case v1beta1.Sockets, v1beta1.DeprecatedPreferSockets, v1beta1.Any, v1beta1.DeprecatedPreferAny:
		one.Sockets = guest
	default:
		one.Sockets = guest
	}
	return one
}

func preferred(p *Preference) v1beta1.PreferredCPUTopology {
	if p == nil || p.CPU == nil || p.CPU.PreferredCPUTopology == nil {
		return v1beta1.Sockets
	}
	return *p.CPU.PreferredCPUTopology
}

// spread makes as many sockets as the ratio allows and puts the rest into cores (or threads). A number that cannot be
// divided is not spread at all: a guest with one processor too few or too many would be worse.
func spread(guest uint32, p *Preference) kubevirt.CPU {
	ratio, across := uint32(2), v1beta1.SpreadAcrossSocketsCores
	if p.PreferSpreadSocketToCoreRatio > 0 {
		ratio = p.PreferSpreadSocketToCoreRatio
	}
	if o := p.CPU.SpreadOptions; o != nil {
		if o.Ratio != nil && *o.Ratio > 0 {
			ratio = *o.Ratio
		}
		if o.Across != nil {
			across = *o.Across
		}
	}
	undivided := kubevirt.CPU{Sockets: guest, Cores: 1, Threads: 1}
	switch across {
	case v1beta1.SpreadAcrossCoresThreads:
		const threads = 2 // what a core of any processor a guest knows has
		if guest%threads != 0 {
			return kubevirt.CPU{Sockets: 1, Cores: guest, Threads: 1}
		}
		return kubevirt.CPU{Sockets: 1, Cores: guest / threads, Threads: threads}
	case v1beta1.SpreadAcrossSocketsCoresThreads:
		const threads = 2
		if guest%(ratio*threads) != 0 {
			return undivided
		}
		return kubevirt.CPU{Sockets: guest / (ratio * threads), Cores: ratio, Threads: threads}
	case v1beta1.SpreadAcrossSocketsCores:
	}
	if guest%ratio != 0 {
		return undivided
	}
	return kubevirt.CPU{Sockets: guest / ratio, Cores: ratio, Threads: 1}
}

func processors(c *kubevirt.CPU) uint32 {
	if c == nil {
		return 1
	}
	return max(c.Sockets, 1) * max(c.Cores, 1) * max(c.Threads, 1)
}
