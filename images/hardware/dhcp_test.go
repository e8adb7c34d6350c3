//go:build linux

package hardware

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
)

func TestParseAnswerOfDHCP(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	offer := request(7, mac, typeOffer, nil)[:fixedLength]
	offer[0] = 2
	copy(offer[16:], []byte{10, 0, 2, 15})
	offer = binary.BigEndian.AppendUint32(offer, magic)
	good := append(bytes.Clone(offer), optionType, 1, typeOffer, 0, optionMask, 4, 255, 255, 255, 0, optionRouter, 4, 10, 0, 2, 2,
		optionDNS, 8, 10, 0, 2, 4, 10, 0, 2, 5, optionServer, 4, 10, 0, 2, 3, optionEnd)
	l, kind, ok := parseAnswer(good, 7)
	want := Lease{netip.MustParsePrefix("10.0.2.15/24"), netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("10.0.2.3"),
		netip.MustParseAddr("10.0.2.4")}
	if !ok || kind != typeOffer || l != want {
		t.Errorf("offer = %v kind %d %t, want %v", l, kind, ok, want)
	}
	for name, bad := range map[string][]byte{
		"another's":        append(binary.BigEndian.AppendUint32(bytes.Clone(good[:4]), 8), good[8:]...),
		"cut in an option": good[:len(good)-3],
		"cut in the head":  good[:100],
		"without server":   append(bytes.Clone(offer), optionType, 1, typeOffer, optionEnd),
	} {
		if _, _, ok := parseAnswer(bad, 7); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}
