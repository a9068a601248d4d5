/* gpucache estimate: the memory that a model needs, whether it fits, and options that fit. */
#include "core/estimator/present.h"
#include "core/estimator/train.h"
#include "core/io/text.h"
#include "tools/base/tool.h"
#include "tools/estimate/calibration.h"
#include "tools/estimate/estimate_setup.h"
#include "tools/estimate/table.h"

#include <string.h>
#include <unistd.h>

/* One model's answer, with the storage it points to. */
struct result {
    struct gc_answer answer;
    struct gc_estimate estimate;
    struct gc_fit fit;
    struct gc_suggestions suggestions;
};

static int explain(const char *path, enum gc_status status, const struct gc_estimate *estimate)
{
    if (status == GC_OVERFLOW)
        return tool_fail(&tool_command_estimate, "%s: %s: %s", path,
                         gc_estimate_part_key(estimate->overflowed), gc_status_text(status));
    return tool_fail(&tool_command_estimate, "%s: %s", path, gc_status_text(status));
}

static int answer_estimator(const struct estimate_setup *setup, const char *path,
                            const struct gc_estimator *estimator, struct result *result)
{
    const char *why = gc_train_find_refusal(estimator, &setup->request);
    if (why != NULL)
        return tool_fail(&tool_command_estimate, "%s: %s", path, why);
    enum gc_status status = gc_estimator_run(estimator, &setup->request, &result->estimate);
    if (status != GC_OK)
        return explain(path, status, &result->estimate);
    result->answer = (struct gc_answer){.model = path, .estimate = &result->estimate};
    if (!setup->has_budget)
        return TOOL_DONE;
    gc_fit_check(&result->estimate, &setup->budget, &result->fit);
    status = gc_fit_suggest(estimator, &setup->request, &setup->budget, &result->suggestions);
    if (status != GC_OK)
        return explain(path, status, &result->estimate);
    result->answer.fit = &result->fit;
    result->answer.budget = &setup->budget;
    result->answer.suggestions = &result->suggestions;
    return TOOL_DONE;
}

static int answer_model(const struct estimate_setup *setup, const char *path, struct result *result)
{
    struct gc_model *model;
    struct gc_model_error error;
    struct gc_estimator *estimator;
    int status;
    if (gc_model_open(path, NULL, &model, &error) != GC_OK)
        return estimate_refuse_model(&tool_command_estimate, path, &error);
    const enum gc_status opened = gc_estimator_open(model, setup->weight_dtype, &estimator);
    if (opened != GC_OK) {
        result->estimate.overflowed = GC_ESTIMATE_weight;
        status = explain(path, opened, &result->estimate);
    } else {
        status = answer_estimator(setup, path, estimator, result);
        gc_estimator_close(estimator);
    }
    gc_model_close(model);
    return status;
}

/* ---- one model ---- */

static void print_one(const struct estimate_setup *setup, const struct result *result,
                      const struct calibration *calibration, struct gc_writer *out)
{
    struct gc_json json;
    if (!setup->json) {
        gc_present_text(out, &result->answer);
        if (calibration != NULL)
            calibration_print_text(out, calibration);
        return;
    }
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_present_members(&json, &result->answer);
    if (calibration != NULL)
        calibration_write_json(&json, calibration);
    gc_json_end_object(&json);
}

static int run_one(const struct estimate_setup *setup)
{
    static struct result result;
    struct calibration calibration;
    struct gc_writer out;
    int status = answer_model(setup, setup->models.words[0], &result);
    if (status == TOOL_DONE && setup->report != NULL)
        status = calibration_measure(&tool_command_estimate, setup->report, &result.estimate,
                                     setup->request.context_bytes, &calibration);
    if (status == TOOL_DONE && setup->report != NULL)
        status = calibration_store(&tool_command_estimate, &calibration, setup->output);
    if (status != TOOL_DONE)
        return status;
    gc_writer_init(&out, STDOUT_FILENO);
    print_one(setup, &result, setup->report != NULL ? &calibration : NULL, &out);
    status = tool_finish(&tool_command_estimate, &out);
    if (status == TOOL_DONE && setup->has_budget && !result.fit.fits)
        return TOOL_DOES_NOT_FIT;
    return status;
}

/* ---- several ---- */

/* A model that cannot be read gets a line; the others are still compared. */
static int run_several(const struct estimate_setup *setup)
{
    static struct result result;
    struct gc_json json;
    struct gc_writer out;
    int worst = TOOL_DONE;
    bool is_partial = false;
    gc_writer_init(&out, STDOUT_FILENO);
    gc_json_init(&json, &out);
    if (setup->json) {
        gc_json_begin_object(&json, GC_JSON_LINES);
        gc_json_open_array(&json, "models", GC_JSON_LINES);
    } else {
        gc_present_head(&out);
    }
    for (size_t i = 0; i < setup->models.count; i++) {
        const int status = answer_model(setup, setup->models.words[i], &result);
        if (status != TOOL_DONE) {
            worst = status;
            continue;
        }
        if (setup->json)
            gc_present_json(&json, &result.answer);
        else
            gc_present_line(&out, &result.answer);
        is_partial = is_partial || result.estimate.unknown_parts != 0;
        if (worst == TOOL_DONE && setup->has_budget && !result.fit.fits)
            worst = TOOL_DOES_NOT_FIT;
    }
    if (setup->json) {
        gc_json_end_array(&json);
        gc_json_end_object(&json);
    } else if (is_partial) {
        gc_present_foot(&out);
    }
    const int status = tool_finish(&tool_command_estimate, &out);
    return status != TOOL_DONE ? status : worst;
}

static int run(int argc, char **argv)
{
    static struct estimate_setup setup;
    const int status = estimate_setup_parse(&tool_command_estimate, argc, argv, &setup);
    if (status != TOOL_DONE || setup.models.helped)
        return status;
    if (setup.table)
        return estimate_table_run(&tool_command_estimate, &setup);
    return setup.models.count == 1 ? run_one(&setup) : run_several(&setup);
}

const struct tool_command tool_command_estimate = {
    .name = "estimate",
    .synopsis = "MODEL... [OPTIONS]",
    .summary = "estimate the memory a model needs, and what fits",
    .help = "MODEL is a safetensors, GGUF or ONNX file, an index of shards, a Hugging Face\n"
            "folder, its config.json alone (before a download), or a JSON description of\n"
            "tensors. Only headers are read.\n"
            "\n"
            "  --budget S             memory it must fit in: a size, a percentage of\n"
            "                         --memory, or per device (0=8GiB,1=50%)\n"
            "  --memory S             a device's memory: for percentages, and the budget\n"
            "                         without --budget\n"
            "  --batch N              sequences at once (1)\n"
            "  --seq-len N            tokens of each, generated ones included (the\n"
            "                         model's largest)\n"
            "  --engine E             program that runs it: transformers, vllm, llama.cpp,\n"
            "                         sglang, tensorrt-llm (llama.cpp for GGUF, else\n"
            "                         transformers): its steps, blocks, graphs, reserve\n"
            "  --chunk N              tokens that are computed at once: of all sequences;\n"
            "                         with transformers of each (the engine's)\n"
            "  --utilisation F        share of the memory that the engine uses (its own)\n"
            "  --dtype T              type of floating-point weights and of activations (the\n"
            "                         model's), or a file of quantised weights: Q8_0,\n"
            "                         Q6_K, Q5_K_M, Q4_K_M, ..., fp8, awq, gptq, nf4\n"
            "  --kv-dtype T           type of keys and values (the model's)\n"
            "  --dim name=N           an open dimension of an ONNX graph; may be repeated\n"
            "  --devices N            devices that share the model (1)\n"
            "  --split layers|tensor  each device has some of the layers, or a part of\n"
            "                         each layer (layers)\n"
            "  --attention flash|full whether scores are written out: full (flash)\n"
            "  --gpu-layers N         layers in device memory, the last ones, the output\n"
            "                         being one more; the others in host memory (all)\n"
            "  --resident-experts N   experts of each layer that stay on the device (all)\n"
            "  --train OPTIMISER      training instead of inference: adamw, adamw-foreach,\n"
            "                         sgd, sgd-momentum, adafactor, adamw-8bit\n"
            "  --mixed-precision      parameters in 32 bits, activations in 16 (autocast)\n"
            "  --checkpointing        activations are computed again in the backward pass\n"
            "  --zero 0|1|2|3         over --devices N, a batch on each: each has all; states\n"
            "                         are divided; gradients too; parameters too\n"
            "  --lora RANK            adapters of this rank are trained, nothing else\n"
            "  --overhead F           the sum is multiplied by it (1.1 with transformers,\n"
            "                         else 1)\n"
            "  --context-memory S     memory of a context on each device (300 MiB);\n"
            "                         measured: measure it on the first device here\n"
            "  --calibrate REPORT     compare with a run, by its JSON report, and derive the\n"
            "                         overhead and the memory of a context\n"
            "  --output FILE          file for the result of --calibrate\n"
            "  --calibration FILE     read overhead and context from such a file\n"
            "  --table                a table by the type of weights: each with its total\n"
            "                         and the smallest device; cache by context and type\n"
            "  --json                 print JSON; for several models an object with \"models\"\n",
    .run = run,
};
