// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/reason"
)

// explanation is a row of the tables of reasons. For a container, result reports
// whether there is a warning.
type explanation struct{ result, meaning, action string }

var ofObjects = map[string]explanation{
	string(reason.Injected):               {"allowed", "The patch adds the identity to the pod.", ""},
	string(reason.AlreadyInjected):        {"allowed", "The pod has everything that it would get, for example if the webhook is called a second time.", ""},
	string(reason.NoIdentity):             {"allowed", "The ServiceAccount does not ask for an identity.", "Annotate the ServiceAccount if its pods need credentials."},
	string(reason.IdentityRequired):       {"denied, 403", "The ServiceAccount has the label `lanyard.dev/identity: required`, or the pod has `lanyard.dev/inject: \"true\"`, but there is no annotation that asks for an identity yet, or no container that can be injected.", "Wait: controllers try again, see [identity later](../identity-later.md). If it keeps happening, annotate the ServiceAccount, or remove the label or the annotation."},
	string(reason.OptedOut):               {"allowed", "The pod has `lanyard.dev/inject: \"false\"`, as an annotation or a label. Or an [adopted](../migrate/adoption.md#both-webhooks-at-once) webhook gives it the only identity.", ""},
	string(reason.MirrorPod):              {"allowed", "The pod mirrors a static pod of a node, which cannot have a token.", ""},
	string(reason.NoContainer):            {"allowed", "There is no container to inject into. The API server itself denies a pod without containers.", ""},
	string(reason.InvalidAnnotation):      {"denied, 400", "An annotation is malformed, unknown, or has no effect on this object.", "Read the message: it has the object, the key, the value and the allowed form."},
	string(reason.IdentityNotAllowed):     {"denied, 403", "`lanyard.dev/allowed-identities` of the namespace, or without it `--default-allowed-identities`, does not have the identity.", "Ask the administrator of the cluster, or correct the ServiceAccount."},
	string(reason.ForeignInjection):       {"denied, 400", "The pod has Lanyard's annotations for another identity: its manifest was copied from a running pod.", "Remove from the manifest: the annotations `lanyard.dev/injected`, `lanyard.dev/aws-config` and `lanyard.dev/gcp-credentials`, the token volume, its mounts and the variables."},
	string(reason.InvalidMountPath):       {"denied, 400", "A container mounts a volume at the token mount path or below it, and spells the path differently: with a trailing slash, dots or double slashes. On Windows, a drive, backslashes or other case count, too. Or the container has a device there.", "Write the path as in the message, mount the volume somewhere else, or name the container in `lanyard.dev/skip-containers`."},
	string(reason.VolumeNameTaken):        {"denied, 400; or allowed, with a warning", "The pod has volumes with both names of the token volume, and uses them for something else. Or it uses the name of a [copy](../migrate/adoption.md) for something else: then it does not get the copy.", "Rename one of the volumes."},
	string(reason.TooLarge):               {"denied, 400", "The pod has more than 512 containers, very long lists, or would get more variables than an API server stores.", "Make the pod smaller."},
	string(reason.ServiceAccountNotFound): {"fault, 503", "The ServiceAccount does not exist.", "Create it."},
	string(reason.LookupFailed):           {"fault, 503; denied, 500, if only the namespace could not be read", "The ServiceAccount or the namespace could not be read.", "Wait: controllers try again. If it keeps happening, check that lanyard-webhook reaches the API server and has its [permissions](../operations/README.md#rights)."},
	string(reason.Overloaded):             {"fault, 503", "Other requests used all of the memory that requests may use.", "Wait: clients try again. If it keeps happening, find out [who sends them](../concepts/threat-model.md), or add replicas."},
	string(reason.InvalidReview):          {"fault, 503 or 400; denied, 400, if a list of the pod has an element of the wrong type", "The request is not an AdmissionReview, is not of the kind that the path is for, or its object has a field of the wrong type.", "Compare the webhook configuration with `deploy/`."},
	string(reason.InternalError):          {"fault, 503", "A fault in Lanyard.", "Report it, with the log line."},
	string(reason.Labeled):                {"allowed", "The webhook checked the label `lanyard.dev/identity` of a ServiceAccount: it added it, removed it, or found it correct.", ""},
	string(reason.Adopted):                {"allowed", "The ServiceAccount's annotations of [another program](../migrate/adoption.md) were translated to Lanyard's, and the label `lanyard.dev/identity` was made right.", ""},
	string(reason.Mapped):                 {"allowed", "A [mapping](../providers.md#map-serviceaccounts-to-identities) of the cluster added annotations to a ServiceAccount, and the label `lanyard.dev/identity`.", ""},
	string(reason.Valid):                  {"allowed", "The annotations of the ServiceAccount are valid.", ""},
}

var ofContainers = map[string]explanation{
	string(reason.PodNameUnusable):      {"yes", "The ServiceAccount has `lanyard.dev/aws-session-name: pod`, and the name of the pod has only one character, or more than 64. The session name is the default.", "Give the pod a shorter name."},
	string(reason.ContainerNotSelected): {"no", "The pod's `lanyard.dev/containers` or `lanyard.dev/skip-containers` leaves it out, or an [adopted](../migrate/adoption.md#both-webhooks-at-once) webhook writes the whole container.", ""},
	string(reason.ContainerNotFound):    {"yes", "One of those annotations names a container that the pod does not have.", "Correct the name, unless another webhook adds that container later."},
	string(reason.EnvironmentTaken):     {"yes", "The container points to a token or credentials file of its own, for example with `AWS_WEB_IDENTITY_TOKEN_FILE`. It gets the mount, but none of that provider's variables.", "Remove the variable if the container is meant to use the injected identity."},
	string(reason.EnvironmentShadowed):  {"yes", "The container sets a variable that SDKs may prefer to the injected identity, such as `AWS_ACCESS_KEY_ID`.", "Remove the variable, or SDKs may not use the injected identity."},
	string(reason.MountPathTaken):       {"yes", "Something else is mounted at the token mount path, or below it. The container gets no identity.", "Mount it somewhere else."},
	string(reason.VolumeMissing):        {"yes", "An ephemeral container was added to a pod whose token volume does not match the current identity of its ServiceAccount.", "Re-create the pod."},
}

func objectReasons() (string, error) {
	return reasonTable("Result", ofObjects, ofContainers)
}

func containerReasons() (string, error) {
	return reasonTable("Warning", ofContainers, ofObjects)
}

// reasonTable lists the reasons that are explained in texts. The other table must
// explain the rest.
func reasonTable(column string, texts, rest map[string]explanation) (string, error) {
	t := newTable("Reason", column, "What it means", "What to do")
	var names []string
	for _, r := range reason.All() {
		name := string(r)
		e, found := texts[name]
		if _, other := rest[name]; found == other {
			return "", fmt.Errorf("want one text about %s", name)
		}
		if found {
			names = append(names, name)
			t.row(code(name), e.result, e.meaning, e.action)
		}
	}
	slices.Sort(names)
	return t.String(), unused(texts, names)
}
