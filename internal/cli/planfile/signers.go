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

// Signers says who must have signed a plan before it is carried out.
type Signers struct {
	List string // file
	few  int    // how many of them at least
}

// Register adds the flags to a command.
func (s *Signers) Register(command *cobra.Command) {
	command.Flags().StringVar(&s.List, "signed-by", "", "carry out only a plan that people of this list have signed (ssh-keygen's allowed signers)")
	command.Flags().IntVar(&s.few, "signers", 1, "how many people of --signed-by must have signed it")
}

// Validate refuses flags that do not go together.
func (s *Signers) Validate() error {
	if s.few < 1 && s.List != "" {
		return exit.Fail(exit.Usage, "say --signers 2", "--signers %d: at least one", s.few)
	}
	if s.few > 1 && s.List == "" {
		return exit.Fail(exit.Usage, "say --signed-by LIST, with who may sign", "--signers %d, and no list of who may sign", s.few)
	}
	return nil
}

// Check returns who signed a plan's file; an error where they are too few.
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
		by := "nobody"
		if len(who) > 0 {
			by = strings.Join(who, ", ")
		}
		return nil, exit.Fail(exit.Failed, "have it read and signed: theseus sign "+shell.Word(file)+" --key KEY", "%s is signed by %s; --signers %d asks for more of the list",
			file, by, s.few)
	}
	return who, nil
}
