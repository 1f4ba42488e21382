package controller

import (
	"errors"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// Signers are the people whose signatures of approvals count. The zero value is no list.
type Signers struct {
	List []signed.Signer
	// Err is why the list cannot be read; no approval counts until then.
	Err error
}

// readSigners reads a list in the format of ssh-keygen; "" means that there is none.
func readSigners(file string) Signers {
	if file == "" {
		return Signers{}
	}
	list, err := signed.ReadSigners(file)
	return Signers{list, err}
}

// signatures reports whether only signed approvals count: the controller has a list of those who may sign, or the API
// server does not tie approvals to their writers. Without a list that can be read, none counts.
func (s Situation) signatures() bool {
	return len(s.Signers.List) > 0 || s.Signers.Err != nil || s.Policy.Unserved
}

// counted are the approvals of exactly the plan of a Migration.
type counted struct {
	// who approved: people on the list if signatures are demanded, else users. Each once, in the order of approvals.
	who []string
	// old are the names of approvals that do not count because of their age.
	old []string
	// unsigned are the names of approvals that lack a valid signature, each with the reason.
	unsigned []string
}

// count counts the approvals of exactly the plan of a Migration.
func count(s Situation) counted {
	var c counted
	seen := map[string]bool{}
	for _, a := range s.Approvals {
		if a.Spec.Migration != s.Migration.Name || a.Spec.PlanHash != s.Migration.Spec.PlanHash || a.Spec.User == "" {
			continue
		}
		if tooOld(a, s.Migration, s.Policy) {
			c.old = append(c.old, a.Name)
			continue
		}
		who, err := []string{a.Spec.User}, error(nil)
		if s.signatures() {
			who, err = signedBy(a, s.Signers.List)
		}
		if err != nil {
			c.unsigned = append(c.unsigned, fmt.Sprintf("%s (%v)", a.Name, err))
		}
		for _, one := range who {
			if !seen[one] {
				seen[one] = true
				c.who = append(c.who, one)
			}
		}
	}
	return c
}

// signedBy are the people on a list who signed an approval. Their keys must have been valid when it was created, which
// the API server says: a run of hours does not stop because a key expires.
func signedBy(a v1alpha1.Approval, list []signed.Signer) ([]string, error) {
	if strings.TrimSpace(a.Spec.Signature) == "" {
		return nil, errors.New("it has no signature")
	}
	return signed.Check([]byte(a.Spec.PlanHash), map[string][]byte{"spec.signature": []byte(a.Spec.Signature)}, list,
		a.CreationTimestamp.Time)
}

// listed is why the list of signers does not do, as a condition, and true.
func listed(s Situation) (Condition, bool) {
	const set = "set allowedSigners of the chart of Theseus; no approval counts until then"
	switch {
	case s.Signers.Err != nil:
		return no(v1alpha1.ReasonSignersInvalid, sentence("the list of allowed signers cannot be read: "+
			s.Signers.Err.Error(), engine.HintOf(s.Signers.Err)+", and "+set)), true
	case s.Policy.Unserved && len(s.Signers.List) == 0:
		return no(v1alpha1.ReasonSignersMissing, "this API server does not check who approves, as Kubernetes does "+
			"from 1.30 on, so only signed approvals count, and the controller has no list of allowed signers: "+
			set), true
	}
	return Condition{}, false
}

// several joins texts for a message, and shortens a long list.
func several(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
