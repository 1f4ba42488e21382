package loss

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// Whom is the value of v1alpha1.Asked.Of for some nodes; empty for nil, which means all. It has 32 bits of each name,
// since every agent of the cluster reads it. A node that is not asked and has the same bits as one that is answers too,
// which only costs its report.
func Whom(nodes map[string]bool) string {
	if nodes == nil {
		return ""
	}
	var marks []uint32
	for node := range nodes {
		marks = append(marks, markOf(node))
	}
	slices.Sort(marks)
	var text []byte
	for _, mark := range marks {
		text = binary.BigEndian.AppendUint32(text, mark)
	}
	return base64.RawStdEncoding.EncodeToString(text)
}

// Asks reports whether a question is for a node. One that cannot be read is for all: an answer too many harms nothing.
func Asks(of, node string) bool {
	text, err := base64.RawStdEncoding.DecodeString(of)
	if err != nil || len(text)%4 != 0 || len(text) == 0 {
		return true
	}
	for mark := range slices.Chunk(text, 4) {
		if binary.BigEndian.Uint32(mark) == markOf(node) {
			return true
		}
	}
	return false
}

func markOf(node string) uint32 { return uint32(draw("", node)) }
