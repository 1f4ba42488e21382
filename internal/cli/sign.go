package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

func (a *app) signCommand() *cobra.Command {
	var key string
	command := &cobra.Command{
		Use:   "sign PLAN",
		Short: "Sign a plan that you have read, with your SSH key",
		Long: "Writes a signature of the plan's file beside it: PLAN.sig, or PLAN.2.sig and so on where there is one.\n" +
			"theseus apply --signed-by LIST --signers 2 carries a plan out only if two people of the list have signed it.\n" +
			"It is a signature of OpenSSH: ssh-keygen -Y sign -n " + signed.Namespace + " makes one too, and ssh-keygen -Y verify checks it.",
		Args: exactly(1, "one plan file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if key == "" {
				return fail(exitUsage, "say --key ~/.ssh/id_ed25519, or a .pub file whose key the SSH agent has", "no key is given")
			}
			p, data, err := readPlanData(args[0])
			if err != nil {
				return err
			}
			if err := plan.Verify(p); err != nil {
				return fail(exitFailed, "make the plan anew with `theseus plan`", "the plan does not hold: %w", err)
			}
			return a.sign(args[0], p, data, key)
		},
	}
	command.Flags().StringVar(&key, "key", "", "file of an SSH key; of a public one (.pub) the SSH agent signs")
	return command
}

// sign writes a signature of a plan's file beside it.
func (a *app) sign(file string, p *plan.Plan, data []byte, key string) error {
	signature, err := signed.Sign(data, key, a.passphrase)
	if err != nil {
		return err
	}
	name := file + ".sig"
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s.%d.sig", file, n)
	}
	if err := outfile.Write(name, signature); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "signed %s (hash %s): %s\nwho checks it: ssh-keygen -Y verify -f LIST -I NAME -n %s -s %s < %s\n",
		p.Name, p.Hash, name, signed.Namespace, shell.Word(name), shell.Word(file))
	return err
}

// passphrase asks for that of a key, on the terminal.
func (a *app) passphrase() ([]byte, error) {
	in, ok := a.terminal()
	if !ok {
		return nil, fail(exitUsage, "let the SSH agent sign: ssh-add the key, and name its .pub file", "the key has a passphrase, and the input is no terminal")
	}
	fmt.Fprint(a.Err, "Passphrase of the key: ")
	defer fmt.Fprintln(a.Err)
	return term.ReadPassword(int(in.Fd()))
}

// signers says who must have signed a plan before it is carried out.
type signers struct {
	list string // file
	few  int    // how many of them at least
}

func (s *signers) register(command *cobra.Command) {
	command.Flags().StringVar(&s.list, "signed-by", "", "carry out only a plan that people of this list have signed (ssh-keygen's allowed signers)")
	command.Flags().IntVar(&s.few, "signers", 1, "how many people of --signed-by must have signed it")
}

func (s *signers) validate() error {
	if s.few < 1 && s.list != "" {
		return fail(exitUsage, "say --signers 2", "--signers %d: at least one", s.few)
	}
	if s.few > 1 && s.list == "" {
		return fail(exitUsage, "say --signed-by LIST, with who may sign", "--signers %d, and no list of who may sign", s.few)
	}
	return nil
}

// check returns who signed a plan's file; an error where they are too few.
func (s *signers) check(file string, data []byte) ([]string, error) {
	if s.list == "" {
		return nil, nil
	}
	people, err := signed.ReadSigners(s.list)
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
		return nil, fail(exitFailed, "have it read and signed: theseus sign "+shell.Word(file)+" --key KEY", "%s is signed by %s; --signers %d asks for more of the list",
			file, by, s.few)
	}
	return who, nil
}
