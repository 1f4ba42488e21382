package cloud

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Lines formats a plan's actions as aws commands for a shell; back makes the commands that revert them, in reverse
// order.
func Lines(p *Plan, back bool) []string {
	lines := []string{"set -eu"}
	for _, a := range p.Steps(back) {
		lines = append(lines, "# "+oneLine(a.Why), a.line(back))
	}
	return lines
}

// Steps returns the actions in the order in which they are executed or reverted.
func (p *Plan) Steps(back bool) []Action {
	steps := make([]Action, 0, len(p.Actions))
	for n := range p.Actions {
		if back {
			n = len(p.Actions) - 1 - n
		}
		steps = append(steps, p.Actions[n])
	}
	return steps
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// line is one action as a command. What only Amazon knows once it is made (the ARN of an issuer, the id of a version)
// is asked for.
func (a Action) line(back bool) string {
	q := shell
	switch a.Verb {
	case CreateIssuer:
		if back {
			find := fmt.Sprintf("OpenIDConnectProviderList[?ends_with(Arn, ':oidc-provider/%s')].Arn", a.Subject)
			return `aws iam delete-open-id-connect-provider --open-id-connect-provider-arn "$(aws iam list-open-id-connect-providers --output text --query ` +
				q(find) + `)"`
		}
		line := "aws iam create-open-id-connect-provider --url " + q("https://"+a.Subject) +
			words("--client-id-list", a.Issuer.Clients)
		return line + words("--thumbprint-list", a.Issuer.Thumbprints)
	case CreateProfile:
		return choose(back, "aws iam delete-instance-profile", "aws iam create-instance-profile") +
			" --instance-profile-name " + q(a.Subject)
	case AddToProfile:
		return choose(back, "aws iam remove-role-from-instance-profile", "aws iam add-role-to-instance-profile") +
			" --instance-profile-name " + q(a.Subject) + " --role-name " + q(a.Name)
	case AttachPolicy:
		return choose(back, "aws iam detach-role-policy", "aws iam attach-role-policy") + " --role-name " +
			q(a.Subject) + " --policy-arn " + q(a.Name)
	case PutPolicy:
		if back && a.Before == "" {
			return "aws iam delete-role-policy --role-name " + q(a.Subject) + " --policy-name " + q(a.Name)
		}
		return "aws iam put-role-policy --role-name " + q(a.Subject) + " --policy-name " + q(a.Name) +
			" --policy-document " + q(a.to(back))
	case Trust:
		return "aws iam update-assume-role-policy --role-name " + q(a.Subject) + " --policy-document " + q(a.to(back))
	case NewVersion:
		return "aws iam create-policy-version --set-as-default --policy-arn " + q(a.Subject) +
			" --policy-document " + q(a.to(back))
	}
	direction := choose(a.Verb == AllowIn, "ingress", "egress")
	return "aws ec2 " + choose(back, "revoke", "authorize") + "-security-group-" + direction + " --group-id " +
		q(a.Subject) + " --ip-permissions " + q(a.permission())
}

func (a Action) to(back bool) string { return string(choose(back, a.Before, a.After)) }

func choose[T any](first bool, yes, no T) T {
	if first {
		return yes
	}
	return no
}

// permission is a rule as the aws tool takes it.
func (a Action) permission() string {
	r := a.Rule
	permission := map[string]any{"IpProtocol": r.Protocol}
	if r.Protocol != "-1" {
		permission["FromPort"], permission["ToPort"] = r.From, r.To
	}
	peer := map[string]any{}
	if r.Text != "" {
		peer["Description"] = r.Text
	}
	switch {
	case r.Group != "":
		peer["GroupId"] = r.Group
		permission["UserIdGroupPairs"] = []any{peer}
	case r.PrefixList != "":
		peer["PrefixListId"] = r.PrefixList
		permission["PrefixListIds"] = []any{peer}
	case strings.Contains(r.CIDR, ":"):
		peer["CidrIpv6"] = r.CIDR
		permission["Ipv6Ranges"] = []any{peer}
	default:
		peer["CidrIp"] = r.CIDR
		permission["IpRanges"] = []any{peer}
	}
	text, err := json.Marshal([]any{permission})
	if err != nil {
		return ""
	}
	return string(text)
}

func words(flag string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	text := " " + flag
	for _, value := range values {
		text += " " + shell(value)
	}
	return text
}

// shell quotes a word for a shell.
func shell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Terraform formats a plan as resources of the provider hashicorp/aws. Parts of a resource that is defined elsewhere
// (the trust of a role, the document of a managed policy) become comments, because two resources for it would conflict.
func Terraform(p *Plan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# What %s lacks of %s.\n", p.Mirror, p.Original)
	for n, a := range p.Actions {
		fmt.Fprintf(&out, "\n# %s\n", oneLine(a.Why))
		name := fmt.Sprintf("mirror_%d", n+1)
		switch a.Verb {
		case CreateIssuer:
			resource(&out, "aws_iam_openid_connect_provider", name, "url", hcl("https://"+a.Subject), "client_id_list",
				list(a.Issuer.Clients), "thumbprint_list", list(a.Issuer.Thumbprints))
		case CreateProfile:
			role := `""`
			for _, b := range p.Actions {
				if b.Verb == AddToProfile && b.Subject == a.Subject {
					role = hcl(b.Name)
				}
			}
			resource(&out, "aws_iam_instance_profile", name, "name", hcl(a.Subject), "role", role)
		case AddToProfile:
			fmt.Fprintf(&out, "# role %s, in the instance profile %s\n", oneLine(a.Name), oneLine(a.Subject))
		case AttachPolicy:
			resource(&out, "aws_iam_role_policy_attachment", name, "role", hcl(a.Subject), "policy_arn", hcl(a.Name))
		case PutPolicy:
			if a.Before != "" {
				comment(&out, "policy "+a.Name+" of role "+a.Subject, a.After)
				continue
			}
			resource(&out, "aws_iam_role_policy", name, "role", hcl(a.Subject), "name", hcl(a.Name),
				"policy", hcl(string(a.After)))
		case Trust:
			comment(&out, "assume_role_policy of role "+a.Subject, a.After)
		case NewVersion:
			comment(&out, "policy "+a.Subject, a.After)
		case AllowIn, AllowOut:
			rule(&out, name, a)
		}
	}
	return out.String()
}

func comment(out *strings.Builder, what string, d Document) {
	fmt.Fprintf(out, "# %s becomes, where it is written:\n# %s\n", oneLine(what), d)
}

func rule(out *strings.Builder, name string, a Action) {
	r := a.Rule
	kind := choose(a.Verb == AllowIn, "aws_vpc_security_group_ingress_rule", "aws_vpc_security_group_egress_rule")
	fields := []string{"security_group_id", hcl(a.Subject), "ip_protocol", hcl(r.Protocol)}
	if r.Protocol != "-1" {
		fields = append(fields, "from_port", fmt.Sprint(r.From), "to_port", fmt.Sprint(r.To))
	}
	switch {
	case r.Group != "":
		fields = append(fields, "referenced_security_group_id", hcl(r.Group))
	case r.PrefixList != "":
		fields = append(fields, "prefix_list_id", hcl(r.PrefixList))
	case strings.Contains(r.CIDR, ":"):
		fields = append(fields, "cidr_ipv6", hcl(r.CIDR))
	default:
		fields = append(fields, "cidr_ipv4", hcl(r.CIDR))
	}
	if r.Text != "" {
		fields = append(fields, "description", hcl(r.Text))
	}
	resource(out, kind, name, fields...)
}

// resource writes a block of pairs of a name and an expression.
func resource(out *strings.Builder, kind, name string, fields ...string) {
	fmt.Fprintf(out, "resource %q %q {\n", kind, name)
	for n := 0; n < len(fields); n += 2 {
		fmt.Fprintf(out, "  %s = %s\n", fields[n], fields[n+1])
	}
	out.WriteString("}\n")
}

// hcl quotes a text: what policies write as ${aws:username} is no expression of Terraform's.
func hcl(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for n, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case (r == '$' || r == '%') && strings.HasPrefix(text[n+1:], "{"):
			out.WriteRune(r)
			out.WriteRune(r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func list(values []string) string {
	var quoted []string
	for _, value := range values {
		quoted = append(quoted, hcl(value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
