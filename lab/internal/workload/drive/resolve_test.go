package drive

import (
	"encoding/binary"
	"strings"
	"testing"
)

// answer is a DNS message that answers a question for web. with the given records.
func answer(id uint16, code byte, records ...[]byte) []byte {
	m := question(id, "web.")
	m[2], m[3] = 0x84, code
	binary.BigEndian.PutUint16(m[6:], uint16(len(records)))
	for _, r := range records {
		m = append(m, r...)
	}
	return m
}

// record is a resource record whose name is a pointer to the question's.
func record(kind uint16, data ...byte) []byte {
	r := []byte{0xc0, 12}
	r = binary.BigEndian.AppendUint16(r, kind)
	r = append(r, 0, classIN, 0, 0, 0, 30)
	r = binary.BigEndian.AppendUint16(r, uint16(len(data)))
	return append(r, data...)
}

func TestFirstAddress(t *testing.T) {
	const cname = 5
	address := record(typeA, 198, 18, 0, 1)
	for _, test := range []struct {
		name    string
		message []byte
		want    string
		err     string
	}{
		{name: "one address", message: answer(7, 0, address), want: "198.18.0.1"},
		{name: "an alias before it", message: answer(7, 0, record(cname, 1, 'x', 0), address), want: "198.18.0.1"},
		{name: "the first of two", message: answer(7, 0, address, record(typeA, 198, 18, 0, 2)), want: "198.18.0.1"},
		{name: "no such name", message: answer(7, 3), err: "NXDOMAIN"},
		{name: "no address", message: answer(7, 0), err: "no address"},
		{name: "to another question", message: answer(8, 0, address), err: "another question"},
		{name: "no header", message: []byte{0, 7}, err: "cut short"},
		{name: "half a record", message: answer(7, 0, address[:8]), err: "cut short"},
		{name: "half an address", message: answer(7, 0, address[:14]), err: "cut short"},
		{name: "half a name", message: question(7, "web.")[:14], err: "cut short"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := firstAddress(test.message, 7)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, %v; want an error that says %q", got, err, test.err)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("got %v, %v; want %s", got, err, test.want)
			}
		})
	}
}

func FuzzFirstAddress(f *testing.F) {
	f.Add(answer(7, 0, record(typeA, 198, 18, 0, 1)))
	f.Fuzz(func(t *testing.T, message []byte) {
		if addr, err := firstAddress(message, 7); err == nil && !addr.Is4() {
			t.Errorf("got %v without an error", addr)
		}
	})
}
