package launcherapi

import (
	"encoding/binary"
	"io"
)

// Datagrams of a guest's ports go between the API and the launcher in one stream, each behind its length in two bytes.

// MostDatagram is the length of the longest one.
const MostDatagram = 1<<16 - 1

// WriteDatagram writes one, which is no longer than MostDatagram.
func WriteDatagram(w io.Writer, datagram []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(datagram))), datagram...))
	return err
}

// ReadDatagram reads the next one into room, which has space for MostDatagram.
func ReadDatagram(r io.Reader, room []byte) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	datagram := room[:binary.BigEndian.Uint16(length[:])]
	_, err := io.ReadFull(r, datagram)
	return datagram, err
}
