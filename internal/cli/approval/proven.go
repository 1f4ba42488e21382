package approval

import (
	"path/filepath"

	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// provenFile is this machine's record that it has proven a plan of the cluster. Only what shows a plan reads it:
// whatever acts on a plan proves it each time.
const provenFile = "proven.json"

type proven struct {
	Digest  string `json:"digest"`  // of the plan as the cluster stores it
	Theseus string `json:"theseus"` // the version whose rules it was proven by
}

// Proven returns the digest of the plan that this version has proven on this machine for a migration; "" if it has
// proven none.
func Proven(migration, theseus string) string {
	dir, err := statedir.Of(migration)
	if err != nil {
		return ""
	}
	var known proven
	err = infile.ReadJSON(filepath.Join(dir, provenFile), document.MaxInput, &known)
	if err != nil || known.Theseus != theseus {
		return "" // then the plan is proven again
	}
	return known.Digest
}

// KeepProven remembers that this version has proven a plan on this machine. If it cannot be written, the plan is proven
// again the next time.
func KeepProven(migration, digest, theseus string) {
	if dir, err := statedir.Make(migration); err == nil {
		_ = outfile.WriteJSON(filepath.Join(dir, provenFile), proven{digest, theseus})
	}
}
