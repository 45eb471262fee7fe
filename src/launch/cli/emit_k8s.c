/*
 * emit_k8s.c - manifests for Kubernetes: a secret, a headless service under whose names the pods
 * find each other, a policy that lets only them in, and an indexed job, whose index is the rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/cli/emit.h"
#include "launch/link/secret.h"
#include "launch/text/memory.h"
#include "secure/secret.h"

enum { NAME_MAX_BYTES = 52, SECRET_DIGITS = 2 * PSI_SECRET_BYTES };

/* A pod's name is a label of DNS, with the index behind it. */
static psd_status
check_name(const char *name, struct psd_error *err)
{
    const size_t bytes = strlen(name);

    if (bytes == 0 || bytes > NAME_MAX_BYTES ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != bytes || name[0] == '-' ||
        name[bytes - 1] == '-' || (name[0] >= '0' && name[0] <= '9')) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--name %.64s: for Kubernetes use small letters, digits and '-', a letter "
                        "first, at most %d of them",
                        name, NAME_MAX_BYTES);
    }
    return PSD_OK;
}

/* The digits of a secret file. */
static psd_status
read_digits(const char *path, char digits_p[SECRET_DIGITS + 1], struct psd_error *err)
{
    FILE *file = fopen(path, "re");
    const bool good = file != NULL && fread(digits_p, 1, SECRET_DIGITS, file) == SECRET_DIGITS;

    if (file != NULL) {
        fclose(file);
    }
    digits_p[SECRET_DIGITS] = '\0';
    return good ? PSD_OK : psi_fail_errno(err, PSD_ERR_IO, "read %s", path);
}

/* That of --secret_file, or a new one. */
static psd_status
find_secret(const struct emit *emit, char digits_p[SECRET_DIGITS + 1], struct psd_error *err)
{
    char directory[] = "/tmp/psd-emit-XXXXXX";
    char path[64];
    struct psi_secret *secret = NULL;
    psd_status status;

    if (emit->options->secret_file != NULL) {
        status = psi_secret_from_file(emit->options->secret_file, &secret, err);
        psi_secret_destroy(secret);
        return status == PSD_OK ? read_digits(emit->options->secret_file, digits_p, err) : status;
    }
    if (mkdtemp(directory) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "make a directory in /tmp");
    }
    snprintf(path, sizeof(path), "%s/secret", directory);
    status = launch_secret_make(path, err);
    status = status == PSD_OK ? read_digits(path, digits_p, err) : status;
    unlink(path);
    rmdir(directory);
    return status;
}

/* A string as YAML and JSON both write it. */
static void
print_text(FILE *file, const char *text)
{
    json_t *value = json_string(text);
    char *quoted = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    fputs(quoted != NULL ? quoted : "\"\"", file);
    free(quoted);
    json_decref(value);
}

static void
print_item(FILE *file, const char *text)
{
    fputs("            - ", file);
    print_text(file, text);
    fputc('\n', file);
}

/* $(NAME) would be a variable to Kubernetes, $$(NAME) is none. */
static void
print_word(FILE *file, const char *word)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = memory_need(open_memstream(&text, &bytes));

    for (; *word != '\0'; word++) {
        fputs(strncmp(word, "$(", 2) == 0 ? "$" : "", stream);
        fputc(*word, stream);
    }
    fclose(stream);
    print_item(file, memory_need(text));
    free(text);
}

static psd_status
check_words(const struct words *words, struct psd_error *err)
{
    for (size_t i = 0; i < words->count; i++) {
        json_t *value = json_string(words->list[i]);

        json_decref(value);
        if (value == NULL) {
            return psi_fail(err, PSD_ERR_INVALID, "--emit k8s: word %zu of the command is no UTF-8",
                            i + 1);
        }
    }
    return PSD_OK;
}

static void
print_secret(FILE *file, const char *name, const char *digits)
{
    fprintf(file,
            "apiVersion: v1\n"
            "kind: Secret\n"
            "metadata:\n"
            "  name: %s-secret\n"
            "type: Opaque\n"
            "stringData:\n"
            "  secret: \"%s\\n\"\n"
            "---\n",
            name, digits);
}

/* Names such as NAME-0.NAME, for pods that are not ready, too: they have to meet first. */
static void
print_service(FILE *file, const char *name)
{
    fprintf(file,
            "apiVersion: v1\n"
            "kind: Service\n"
            "metadata:\n"
            "  name: %s\n"
            "spec:\n"
            "  clusterIP: None\n"
            "  publishNotReadyAddresses: true\n"
            "  selector:\n"
            "    psd-job: %s\n"
            "  ports:\n"
            "    - name: coordinator\n"
            "      port: %d\n"
            "---\n",
            name, name, EMIT_PORT);
}

/* Servers and master choose their ports; only pods of the job reach any. */
static void
print_policy(FILE *file, const char *name)
{
    fprintf(file,
            "apiVersion: networking.k8s.io/v1\n"
            "kind: NetworkPolicy\n"
            "metadata:\n"
            "  name: %s\n"
            "spec:\n"
            "  podSelector:\n"
            "    matchLabels:\n"
            "      psd-job: %s\n"
            "  policyTypes:\n"
            "    - Ingress\n"
            "  ingress:\n"
            "    - from:\n"
            "        - podSelector:\n"
            "            matchLabels:\n"
            "              psd-job: %s\n"
            "---\n",
            name, name, name);
}

/* A pod that was taken away is made anew and takes its place again; one that failed ends the job.
 */
static void
print_job_head(FILE *file, const struct emit *emit, const char *name)
{
    fprintf(file,
            "apiVersion: batch/v1\n"
            "kind: Job\n"
            "metadata:\n"
            "  name: %s\n"
            "spec:\n"
            "  completionMode: Indexed\n"
            "  completions: %u\n"
            "  parallelism: %u\n"
            "  backoffLimit: %u\n"
            "  podFailurePolicy:\n"
            "    rules:\n"
            "      - action: Ignore\n"
            "        onPodConditions:\n"
            "          - type: DisruptionTarget\n"
            "            status: \"True\"\n"
            "      - action: FailJob\n"
            "        onExitCodes:\n"
            "          containerName: psd\n"
            "          operator: NotIn\n"
            "          values: [137, 143]\n",
            name, emit->size, emit->size, emit->size);
}

/* The pods of an indexed job have one template: those of servers ask for the same. */
static void
print_resources(FILE *file, const struct emit *emit)
{
    const struct launch_options *options = emit->options;

    if (options->cpus_per_worker == 0 && options->memory_per_worker == 0 &&
        options->gpus_per_worker == 0) {
        return;
    }
    if (emit->servers > 0) {
        fprintf(file, "          # Every pod has as much, those of the servers too.\n");
    }
    fprintf(file, "          resources:\n");
    if (options->cpus_per_worker > 0 || options->memory_per_worker > 0) {
        fprintf(file, "            requests:\n");
    }
    if (options->cpus_per_worker > 0) {
        fprintf(file, "              cpu: \"%u\"\n", options->cpus_per_worker);
    }
    if (options->memory_per_worker > 0) {
        fprintf(file, "              memory: \"%uMi\"\n", options->memory_per_worker);
    }
    if (options->gpus_per_worker > 0) {
        fprintf(file, "            limits:\n              nvidia.com/gpu: %u\n",
                options->gpus_per_worker);
    }
}

/* The secret is copied: psd_run takes it only from a file that is the user's alone. */
static void
print_pod(FILE *file, const struct emit *emit, const char *name)
{
    fprintf(file,
            "  template:\n"
            "    metadata:\n"
            "      labels:\n"
            "        psd-job: %s\n"
            "    spec:\n"
            "      subdomain: %s\n"
            "      restartPolicy: Never\n"
            "      volumes:\n"
            "        - name: given\n"
            "          secret:\n"
            "            secretName: %s-secret\n"
            "        - name: own\n"
            "          emptyDir:\n"
            "            medium: Memory\n"
            "      initContainers:\n"
            "        - name: secret\n"
            "          image: ",
            name, name, name);
    print_text(file, emit->options->image);
    fprintf(file, "\n"
                  "          command: [\"sh\", \"-c\", \"umask 077 && cat /given/secret "
                  ">/own/secret\"]\n"
                  "          volumeMounts:\n"
                  "            - {name: given, mountPath: /given, readOnly: true}\n"
                  "            - {name: own, mountPath: /own}\n"
                  "      containers:\n"
                  "        - name: psd\n"
                  "          image: ");
    print_text(file, emit->options->image);
    fprintf(file,
            "\n"
            "          ports:\n"
            "            - {name: coordinator, containerPort: %d}\n",
            EMIT_PORT);
    print_resources(file, emit);
    fprintf(file, "          volumeMounts:\n"
                  "            - {name: own, mountPath: /own, readOnly: true}\n"
                  "          command:\n");
}

static void
print_command(FILE *file, const struct emit *emit, const char *name)
{
    char text[160];

    print_item(file, "psd_run");
    snprintf(text, sizeof(text), "--coordinator=%s-0.%s:%d", name, name, EMIT_PORT);
    print_item(file, text);
    snprintf(text, sizeof(text), "--size=%u", emit->size);
    print_item(file, text);
    snprintf(text, sizeof(text), "--servers=%u", emit->servers);
    print_item(file, text);
    print_item(file, "--secret_file=/own/secret");
    for (size_t i = 0; i < emit->handed_on.count; i++) {
        print_word(file, emit->handed_on.list[i]);
    }
    print_item(file, "--");
    for (size_t i = 0; i < emit->command.count; i++) {
        print_word(file, emit->command.list[i]);
    }
}

psd_status
emit_k8s(const struct emit *emit, FILE *file, struct psd_error *err)
{
    const char *name = emit->options->name != NULL ? emit->options->name : "poseidon";
    char digits[SECRET_DIGITS + 1];
    psd_status status = check_name(name, err);

    if (status == PSD_OK && emit->options->image == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--emit k8s: --image NAME is needed, with psd_run, ps_master, ps_server "
                          "and the workers' program in it");
    }
    status = status == PSD_OK ? check_words(&emit->command, err) : status;
    status = status == PSD_OK ? check_words(&emit->handed_on, err) : status;
    status = status == PSD_OK ? find_secret(emit, digits, err) : status;
    if (status != PSD_OK) {
        return status;
    }
    emit_print_counts(emit, "index", file);
    fprintf(file, " kubectl apply -f this file.\n"
                  "# It holds the job's secret: keep it to yourself.\n");
    print_secret(file, name, digits);
    print_service(file, name);
    print_policy(file, name);
    print_job_head(file, emit, name);
    print_pod(file, emit, name);
    print_command(file, emit, name);
    explicit_bzero(digits, sizeof(digits));
    return PSD_OK;
}
