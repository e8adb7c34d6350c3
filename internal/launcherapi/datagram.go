package launcherapi

import (
	"encoding/binary"
	"io"
)

// The API and the launcher send the datagrams of a guest's ports over one connection. Before each datagram comes its length in two bytes.

// MostDatagram is the length of the longest datagram.
const MostDatagram = 1<<16 - 1

// WriteDatagram writes a datagram, which is no longer than MostDatagram.
func WriteDatagram(w io.Writer, datagram []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(datagram))), datagram...))
	return err
}

// ReadDatagram reads the next datagram into room, which has space for MostDatagram.
func ReadDatagram(r io.Reader, room []byte) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	datagram := room[:binary.BigEndian.Uint16(length[:])]
	_, err := io.ReadFull(r, datagram)
	return datagram, err
}
