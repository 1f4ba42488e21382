package planfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// Signers says which signatures a plan needs before it is carried out.
type Signers struct {
	List string // file
	few  int    // how many signatures at least
}

// Register adds the flags to a command.
func (s *Signers) Register(command *cobra.Command) {
	command.Flags().StringVar(&s.List, "signed-by", "",
		"accept only a plan that people on this list have signed (ssh-keygen's allowed signers)")
	command.Flags().IntVar(&s.few, "signers", 1, "how many people on the list of --signed-by must have signed it")
}

// Validate refuses incompatible flags.
func (s *Signers) Validate() error {
	if s.few < 1 && s.List != "" {
		return exit.Fail(exit.Usage, "use --signers 1 or more", "--signers %d is below 1", s.few)
	}
	if s.few > 1 && s.List == "" {
		return exit.Fail(exit.Usage, "add --signed-by LIST, the allowed signers",
			"--signers %d needs a list of allowed signers", s.few)
	}
	return nil
}

// Check returns who signed a plan's file, or an error if too few did.
func (s *Signers) Check(file string, data []byte) ([]string, error) {
	if s.List == "" {
		return nil, nil
	}
	people, err := signed.ReadSigners(s.List)
	if err != nil {
		return nil, err
	}
	more, err := filepath.Glob(strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(file) + ".*.sig")
	if err != nil {
		return nil, err
	}
	signatures := map[string][]byte{}
	for _, name := range append([]string{file + ".sig"}, more...) {
		text, err := infile.Read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		signatures[name] = text
	}
	who, err := signed.Check(data, signatures, people, time.Now())
	if err != nil {
		return nil, err
	}
	if len(who) < s.few {
		by := "no one"
		if len(who) > 0 {
			by = strings.Join(who, ", ")
		}
		return nil, exit.Fail(exit.Failed, "have it read and signed: theseus sign "+shell.Word(file)+" --key KEY",
			"%s is signed by %s; --signers %d demands more signers of the list", file, by, s.few)
	}
	return who, nil
}
